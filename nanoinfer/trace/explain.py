"""Steps in words: what ran, why it stopped there, and which numbers were compared.

Every sentence is made from the trace alone. To teach it a new stop reason, add a line to ADMISSION
or DECODE; a reason it does not know is shown as it was recorded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nanoinfer.reasons import MissReason, Preemption, Stop, StopReason
from nanoinfer.trace.events import Event
from nanoinfer.trace.explain_overlap import chosen_early, corrections, device_time, endings, wasted_rows
from nanoinfer.trace.state import events_of_step
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace

Template = Callable[[dict[str, int], str], str]

# Why no further waiting sequence was admitted: operands and "sequence N" of the head at that moment.
ADMISSION: dict[str, Template] = {
    "QUEUE_EMPTY": lambda _, __: "Nobody else was waiting.",
    "MAX_SEQS": lambda o, who: f"The batch was full at {o['limit']} sequences (max_num_seqs), so {who} kept waiting.",
    "TOKEN_BUDGET": lambda o, who: (
        f"The token budget was used up ({o['batched']} of {o['limit']}), so {who} has to wait for the next step."
    ),
    "NO_BLOCKS": lambda o, who: (
        f"Admission stopped at {who}: it needs {_count(o['needed'], 'free block')} and {_is(o['free'])} free."
    ),
    "CHUNK_NOT_ALLOWED": lambda o, who: (
        f"Admission stopped at {who}: it needs {_count(o['needed'], 'token')} and {o['remaining']} were left in the "
        "budget, and only the first sequence of a batch may be cut into chunks."
    ),
    "PREEMPTED_THIS_STEP": lambda _, __: "A step that preempted somebody admits nobody.",
}

DECODE: dict[str, Template] = {
    "RUNNING_EMPTY": lambda _, __: "",  # the ordinary case: everyone had a turn
    "PHASE_EXCLUSIVE": lambda _, who: f"A prefill batch was chosen, so {who} did not decode." if who else "",
    "MAX_SEQS": lambda o, who: f"The batch was full at {o['limit']} sequences (max_num_seqs), so {who} got no turn.",
    "TOKEN_BUDGET": lambda o, who: (
        f"The token budget was used up ({o['batched']} of {o['limit']}), so {who} got no turn."
    ),
}


@dataclass(frozen=True)
class Lookup:
    """One prefix-cache lookup: what matched, and why no more did."""

    seq_id: int
    num_cached_tokens: int
    miss: MissReason
    evicted_at: int | None = None


class History:
    """When every hash was evicted and every sequence first preempted.

    Whoever explains all steps of a long trace builds it once; otherwise every step would read all events.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.evictions: defaultdict[int, list[int]] = defaultdict(list)
        self.first_preemption: dict[int, int] = {}
        for event in events:
            if event.kind == "evict_hash" and event.data:
                self.evictions[event.data["hash"]].append(event.step)
            elif event.kind == "preempt" and event.seq_id is not None:
                self.first_preemption.setdefault(event.seq_id, event.step)

    def last_eviction(self, block_hash: int | None, until: int) -> int | None:
        """The last step up to `until` that evicted `block_hash`."""
        steps = self.evictions.get(block_hash, []) if block_hash is not None else []
        found = bisect_right(steps, until)
        return steps[found - 1] if found else None

    def preempted_before(self, seq_id: int, step: int) -> bool:
        """Whether `seq_id` lost its blocks in a step before `step`."""
        return self.first_preemption.get(seq_id, step) < step


def explain(trace: Trace, i: int, history: History | None = None) -> str:
    """Step `i` in sentences, one a line. `history` saves reading the events again for every step."""
    history = history or History(trace.events)
    step, events = trace.steps[i], events_of_step(trace.events, i)
    waiting = _waiting_at_stop(trace, step, events)
    admission = [_sentence(ADMISSION, step.stop, _name(waiting[:1], step)), *_held_up(step, waiting[1:])]
    preemptions = [_preemption(p) for p in step.preempted]
    after_preemptions = step.stop.reason == StopReason.PREEMPTED_THIS_STEP
    sentences = [
        *_arrivals(events),
        _headline(trace, step),
        chosen_early(trace, i),
        *(_lookup(lookup) for lookup in lookups(trace, i, history) if trace.config.enable_prefix_caching),
        *_returns(step, history),
        *_dropped_samples(step),
        *wasted_rows(trace, i),
        *(preemptions + admission if after_preemptions else admission + preemptions),
        _sentence(DECODE, step.decode_stop, _names(_left_out(trace, step))),
        *endings(trace, events),
        *corrections(trace, i + 1),
        device_time(trace, i),
    ]
    return "\n".join(sentence for sentence in sentences if sentence)


def lookups(trace: Trace, i: int, history: History | None = None) -> list[Lookup]:
    """The prefix-cache lookups of the sequences admitted in step `i`, in order."""
    history = history or History(trace.events)
    found = []
    for event in events_of_step(trace.events, i):
        if event.kind == "admit" and event.data and event.seq_id is not None:
            miss_hash, cached = event.data["miss_hash"], event.data["num_cached_tokens"]
            evicted_at = history.last_eviction(miss_hash, i)
            if miss_hash is None:
                miss = MissReason.LAST_BLOCK
            else:
                miss = MissReason.NEVER_CACHED if evicted_at is None else MissReason.EVICTED
            found.append(Lookup(event.seq_id, cached, miss, evicted_at))
    return found


# ---- who was concerned --------------------------------------------------------------------


def _waiting_at_stop(trace: Trace, step: Step, events: list[Event]) -> list[int]:
    """`waiting` when admission ended: before this step's victims joined it."""
    moved = {e.seq_id for e in events if e.kind in ("run", "abort")}
    victims = {p.victim for p in step.preempted}
    before = trace.replay.at(step.index - 1).waiting
    arrived = [e.seq_id for e in events if e.kind == "arrive"]
    return [s for s in [*before, *arrived] if s is not None and s not in moved and s not in victims]


def _left_out(trace: Trace, step: Step) -> list[int]:
    """Sequences that were running before this step and still are, but had no row in it."""
    before = list(trace.replay.at(step.index - 1).running)
    after, rows = set(trace.replay.at(step.index).running), set(step.columns.seq_id)
    return [seq_id for seq_id in before if seq_id in after and seq_id not in rows]


# ---- sentences ----------------------------------------------------------------------------


def _headline(trace: Trace, step: Step) -> str:
    c = step.columns
    prefills = [
        _prefill(seq_id, computed, scheduled, chunk)
        for seq_id, computed, scheduled, chunk in zip(c.seq_id, c.num_computed, c.num_scheduled, c.chunk, strict=True)
        if chunk is not None
    ]
    decodes = [seq_id for seq_id, chunk in zip(c.seq_id, c.chunk, strict=True) if chunk is None]
    parts = prefills + ([f"{_names(decodes)} {_plural(decodes, 'decodes', 'decode')} one token"] if decodes else [])
    each = " each" if len(decodes) > 1 else ""
    budget = f"{step.num_batched_tokens} of {trace.config.max_num_batched_tokens} budgeted tokens"
    return f"Step {step.index} ({step.phase}, {budget}): {'; '.join(parts)}{each}."


def _prefill(seq_id: int, computed: int, scheduled: int, chunk: tuple[int, int]) -> str:
    part = f" (chunk {chunk[0]} of {chunk[1]})" if chunk[1] > 1 else ""
    end = computed + scheduled
    tokens = f"token {computed}" if scheduled == 1 else f"tokens {computed} to {end - 1}"
    return f"sequence {seq_id} prefills {tokens}{part}"


def _lookup(lookup: Lookup) -> str:
    found = f"The prefix cache held {_count(lookup.num_cached_tokens, 'token')} of sequence {lookup.seq_id}"
    if lookup.miss is MissReason.EVICTED:
        return f"{found}; its next block had been cached but was evicted at step {lookup.evicted_at}."
    if not lookup.num_cached_tokens:
        return ""  # nothing found and nothing lost: the ordinary new prompt
    if lookup.miss is MissReason.LAST_BLOCK:
        return f"{found}; the block of the last token is always computed, because its logits are needed."
    return f"{found}; its next block was never cached."


def _returns(step: Step, history: History) -> list[str]:
    """Who is admitted again after a preemption."""
    starts = {s for s, chunk in zip(step.columns.seq_id, step.columns.chunk, strict=True) if chunk and chunk[0] == 1}
    back = sorted(seq_id for seq_id in starts if history.preempted_before(seq_id, step.index))
    return [f"{_capital(_names(back))} {_plural(back, 'comes', 'come')} back after a preemption."] if back else []


def _held_up(step: Step, behind: list[int]) -> list[str]:
    """Who could perhaps have run, but stands behind a head that could not."""
    if step.stop.reason not in (StopReason.NO_BLOCKS, StopReason.CHUNK_NOT_ALLOWED) or not behind:
        return []
    return [f"{_capital(_names(behind))} behind it {_plural(behind, 'waits', 'wait')} too: first come, first served."]


def _dropped_samples(step: Step) -> list[str]:
    chunks = zip(step.columns.seq_id, step.columns.chunk, strict=True)
    unfinished = [seq_id for seq_id, chunk in chunks if chunk and chunk[0] < chunk[1]]
    return [f"The sample of {_names(unfinished)} is dropped: more of it must be computed first."] if unfinished else []


def _preemption(p: Preemption) -> str:
    cost = f"it gave back {_count(p.blocks, 'block')} and lost the keys and values of {_count(p.tokens, 'token')}"
    if p.rule == "self":
        need = f"Sequence {p.victim} needed a block, none was free and nobody ran behind it"
        return f"{need}, so it preempted itself: {cost}."
    return (
        f"Sequence {p.on_behalf_of} needed a block and none was free, so sequence {p.victim}, "
        f"the tail of running, was preempted: {cost}."
    )


def _arrivals(events: list[Event]) -> list[str]:
    ids = [e.seq_id for e in events if e.kind == "arrive" and e.seq_id is not None]
    return [f"{_capital(_names(ids))} arrived."] if ids else []


def _sentence(templates: dict[str, Template], stop: Stop, who: str) -> str:
    template = templates.get(stop.reason)
    return template(stop.operands, who) if template else f"Stopped: {stop}."


# ---- words --------------------------------------------------------------------------------


def _name(head: list[int], step: Step) -> str:
    if not head:
        return "the next one"
    (seq_id,) = head
    return f"{'the rest of ' if seq_id in step.columns.seq_id else ''}sequence {seq_id}"


def _names(seq_ids: Iterable[int]) -> str:
    """`sequence 3`, `sequences 1, 2 and 3`, or the first few and a count."""
    ids = [str(seq_id) for seq_id in seq_ids]
    if len(ids) < 2:
        return f"sequence {ids[0]}" if ids else ""
    shown, more = (ids, 0) if len(ids) <= 6 else (ids[:5], len(ids) - 5)
    listed = f"{', '.join(shown)} and {more} more" if more else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f"sequences {listed}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _is(number: int) -> str:
    return f"{number} is" if number == 1 else f"{number} are"


def _plural(items: list[int], one: str, many: str) -> str:
    return one if len(items) == 1 else many


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
