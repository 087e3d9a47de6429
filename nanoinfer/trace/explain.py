"""Steps in words: what ran, why it stopped there, and which numbers were compared.

Every sentence is made from the trace alone. What is said of a stop reason stands in `reasons.py`; a
reason that is not declared there is shown as it was recorded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from nanoinfer.reasons import REASONS, MissReason, Preemption, Stop, Waits
from nanoinfer.trace.events import Event
from nanoinfer.trace.explain_overlap import chosen_early, corrections, departures, device_time, wasted_rows
from nanoinfer.trace.state import events_of_step
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace
from nanoinfer.trace.words import capital, counted, fill, sequences, verb


class Line(NamedTuple):
    """One sentence of an explanation. `kind` says what it tells; "headline" is the one that says what ran."""

    kind: str
    text: str


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
    return "\n".join(line.text for line in explanation(trace, i, history))


def explanation(trace: Trace, i: int, history: History | None = None) -> list[Line]:
    """Step `i` in sentences and what each of them tells, in the order in which they are read."""
    history = history or History(trace.events)
    step, events = trace.steps[i], events_of_step(trace.events, i)
    reason = REASONS.get(step.stop.reason)
    why = [("preemption", list(map(_preemption, step.preempted))), ("admission", _admission(trace, step, events))]
    told: list[tuple[str, list[str]]] = [
        ("arrival", _arrivals(events)),
        ("headline", [_headline(trace, step)]),
        ("overlap", chosen_early(trace, i)),
        ("lookup", [_lookup(lookup) for lookup in lookups(trace, i, history) if trace.config.enable_prefix_caching]),
        ("return", _returns(step, history)),
        ("dropped", _dropped_samples(step)),
        ("wasted", wasted_rows(trace, i)),
        *(why if reason and reason.after_preemptions else reversed(why)),
        ("decode", _decode(trace, step)),
        ("ending", departures(trace, events)),
        ("correction", corrections(trace, i + 1)),
        ("device", device_time(trace, i)),
    ]
    return [Line(kind, text) for kind, texts in told for text in texts if text]


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


# ---- why the loops ended ------------------------------------------------------------------


def _admission(trace: Trace, step: Step, events: list[Event]) -> list[str]:
    """Why admission ended, and who could perhaps have run but stands behind a head that could not."""
    waiting = _waiting_at_stop(trace, step, events)
    reason, behind = REASONS.get(step.stop.reason), waiting[1:]
    rest = "the rest of " if waiting and waiting[0] in step.columns.seq_id else ""
    told = [_stop_sentence(step.stop, rest + sequences(waiting[:1]) or "the next one")]
    if reason and Waits.BEHIND in reason.waits and behind:
        wait = verb(behind, "waits", "wait")
        told.append(f"{capital(sequences(behind))} behind it {wait} too: first come, first served.")
    return told


def _decode(trace: Trace, step: Step) -> list[str]:
    """Why running sequences got no turn. A known reason is not told if none was left out."""
    left_out = _left_out(trace, step)
    known = step.decode_stop.reason in REASONS
    return [_stop_sentence(step.decode_stop, sequences(left_out))] if left_out or not known else []


def _stop_sentence(stop: Stop, who: str) -> str:
    """In the words of its reason; as it was recorded where there are none, or an operand that they name is missing."""
    reason = REASONS.get(stop.reason)
    if reason is None or reason.sentence is None or not stop.operands.keys() >= set(reason.operands):
        return f"Stopped: {stop}."
    return fill(reason.sentence, stop.operands, who)


# ---- sentences ----------------------------------------------------------------------------


def _headline(trace: Trace, step: Step) -> str:
    c = step.columns
    rows = zip(c.seq_id, c.num_computed, c.num_scheduled, c.chunk, strict=True)
    prefills = [_prefill(s, computed, scheduled, chunk) for s, computed, scheduled, chunk in rows if chunk]
    decodes = [seq_id for seq_id, chunk in zip(c.seq_id, c.chunk, strict=True) if chunk is None]
    parts = prefills + ([f"{sequences(decodes)} {verb(decodes, 'decodes', 'decode')} one token"] if decodes else [])
    each = " each" if len(decodes) > 1 else ""
    budget = f"{step.num_batched_tokens} of {trace.config.max_num_batched_tokens} budgeted tokens"
    return f"Step {step.index} ({step.phase}, {budget}): {'; '.join(parts)}{each}."


def _prefill(seq_id: int, computed: int, scheduled: int, chunk: tuple[int, int]) -> str:
    part = f" (chunk {chunk[0]} of {chunk[1]})" if chunk[1] > 1 else ""
    end = computed + scheduled
    tokens = f"token {computed}" if scheduled == 1 else f"tokens {computed} to {end - 1}"
    return f"sequence {seq_id} prefills {tokens}{part}"


def _lookup(lookup: Lookup) -> str:
    found = f"The prefix cache held {counted(lookup.num_cached_tokens, 'token')} of sequence {lookup.seq_id}"
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
    return [f"{capital(sequences(back))} {verb(back, 'comes', 'come')} back after a preemption."] if back else []


def _dropped_samples(step: Step) -> list[str]:
    chunks = zip(step.columns.seq_id, step.columns.chunk, strict=True)
    cut = [seq_id for seq_id, chunk in chunks if chunk and chunk[0] < chunk[1]]
    return [f"The sample of {sequences(cut)} is dropped: more of it must be computed first."] if cut else []


def _preemption(p: Preemption) -> str:
    cost = f"it gave back {counted(p.blocks, 'block')} and lost the keys and values of {counted(p.tokens, 'token')}"
    if p.rule == "self":
        need = f"Sequence {p.victim} needed a block, none was free and nobody ran behind it"
        return f"{need}, so it preempted itself: {cost}."
    return (
        f"Sequence {p.on_behalf_of} needed a block and none was free, so sequence {p.victim}, "
        f"the tail of running, was preempted: {cost}."
    )


def _arrivals(events: list[Event]) -> list[str]:
    ids = [e.seq_id for e in events if e.kind == "arrive" and e.seq_id is not None]
    return [f"{capital(sequences(ids))} arrived."] if ids else []
