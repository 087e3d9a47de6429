"""The adapter between a student's classes and the simulator: it records what they do even where they tell it nothing.

A class written from scratch need not call the recorder. `watched` looks at the queues, the block tables and the
hashes before and after each call, and records the events that lead from one to the other, so that the explorer,
`trace.state` and `compare` work for it as for the engine's own classes. Events that the class did record are kept
if they explain what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nanoinfer.core.plan import StepPlan
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.course.grading.failures import explain_failure
from nanoinfer.course.grading.submission import describe, unwritten
from nanoinfer.sim.simulate import simulate
from nanoinfer.trace.events import Event
from nanoinfer.trace.recorder import TraceRecorder
from nanoinfer.trace.state import NO_HASH, Replay, SchedulerState, snapshot
from nanoinfer.trace.trace import OnStep, Trace

MAX_STEPS = 2000
ORDERS = {
    "waiting": "new sequences join at the end, victims at the front, and the head leaves first",
    "running": "new sequences join at the end, and none changes its place",
    "free_blocks": "blocks leave at the front and come back at the end, a table's last one first",
}
PROGRESS = "every step must get on with the work, and the last one ends it"


def run_student(
    prompts: Sequence[Sequence[int]],
    sampling_params: Any = None,
    *,
    scheduler_cls: type[Any] = Scheduler,
    max_steps: int = MAX_STEPS,
    **more: Any,
) -> Trace:
    """`simulate` with classes that may be a student's: recorded whether they call the recorder or not, and bounded.

    Args:
        prompts: token ids of each request.
        sampling_params: as for `simulate`.
        scheduler_cls: in place of Scheduler.
        max_steps: the cap on steps.
        **more: as for `simulate`, `block_manager_cls` and `on_step` among them.

    Raises:
        NotImplementedError: a method is not implemented yet; names it.
        AssertionError: the run gets stuck, or does not end within `max_steps`; or a sequence is lost, or stands where
            no move of a scheduler leads to. Names the step.
    """
    more |= {"prompts": prompts, "sampling_params": sampling_params, "scheduler_cls": watched(scheduler_cls)}
    return run_bounded(max_steps, **more)


def run_bounded(max_steps: int, on_step: OnStep | None = None, **run: Any) -> Trace:
    """`simulate`, with the errors of `run_student` for a run that gets stuck or has no end."""
    seen: list[Trace] = []

    def look(trace: Trace, index: int) -> None:
        seen[:] = [trace]
        if index >= max_steps:
            raise AssertionError(explain_failure(trace, index, "the run to have ended", PROGRESS))
        if on_step:
            on_step(trace, index)

    try:
        return simulate(**run, on_step=look)
    except NotImplementedError as error:
        raise unwritten(error) from None
    except RuntimeError as error:
        if not seen:
            raise
        words = explain_failure(seen[0], -1, f"a step after this one, got {describe(error)}", PROGRESS)
        raise AssertionError(words) from None


def watched(scheduler_cls: Any) -> Any:
    """A subclass of `scheduler_cls`, any class with the methods of Scheduler, that also records what it changes."""

    class Watched(scheduler_cls):  # type: ignore[misc]  # any class will do
        def add(self, seq: Any) -> Any:
            return _recorded(self, super().add, seq)

        step_failed = False

        def schedule(self) -> Any:
            plan = _recorded(self, super().schedule)
            if not isinstance(plan, StepPlan):
                raise TypeError(f"schedule() must return a StepPlan, got {plan!r}")
            return plan

        def postprocess(self, plan: Any, token_ids: Any) -> Any:
            try:
                return _recorded(self, super().postprocess, plan, token_ids)
            except BaseException:
                self.step_failed = True
                raise

        def undo(self, plan: Any) -> Any:
            """Once `postprocess` has failed, that is what counts; and a class written from scratch has no `undo`."""
            if not self.step_failed and hasattr(super(), "undo"):
                super().undo(plan)

        def abort(self, seq_id: int) -> Any:
            return _recorded(self, super().abort, seq_id)

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):  # the trace names the class that decided
        setattr(Watched, name, getattr(scheduler_cls, name))
    return Watched


def _recorded(scheduler: Any, call: Callable[..., Any], *args: Any) -> Any:
    """Make `call`, and see to it that the events recorded in it explain what it changed."""
    recorder = getattr(scheduler, "recorder", None)
    if not isinstance(recorder, TraceRecorder):  # nothing is recorded
        return call(*args)
    before, mark = snapshot(scheduler), len(recorder.events)
    sequences = queued(scheduler) | {seq.seq_id: seq for seq in args if hasattr(seq, "seq_id")}
    when = f"{call.__name__}() of step {recorder.step}"
    result = call(*args)
    expect_none_lost(sequences, scheduler, when)
    after = snapshot(scheduler)
    if _folded(before, recorder.events[mark:]) == after:
        return result
    del recorder.events[mark:]
    events = list(difference(before, after, queued(scheduler) | sequences, result))
    _check(events, before, after, when)
    recorder.events += [event._replace(step=recorder.step) for event in events]
    return result


def queued(scheduler: Any) -> dict[int, Any]:
    """The sequences in both queues, by id."""
    return {seq.seq_id: seq for seq in (*scheduler.waiting, *scheduler.running)}


def expect_none_lost(before: dict[int, Any], scheduler: Any, when: str) -> None:
    """Raise AssertionError unless each sequence of `before` is in a queue or has a reason why it ended."""
    after = queued(scheduler)
    for seq_id, seq in before.items():
        lost = seq_id not in after and seq.finish_reason is None
        assert not lost, f"after {when}, sequence {seq_id} is lost: neither in waiting nor in running, and not finished"


def _check(events: list[Event], before: SchedulerState, after: SchedulerState, when: str) -> None:
    """Refuse to record what did not happen: a queue or a free list in an order that no move of a scheduler leads to."""
    told = _folded(before, events)
    for name, rule in ORDERS.items() if told else ():  # where it does not fold, reading the trace will say so
        live, expected = getattr(after, name), getattr(told, name)
        assert live == expected, f"after {when} {name} is {live}, expected {expected}: {rule}"


def _folded(before: SchedulerState, events: list[Event]) -> SchedulerState | None:
    """What `events` make of `before`; None if they contradict it."""
    try:
        return Replay(before, [event._replace(step=0) for event in events]).at(0).freeze()
    except ValueError:
        return None


# ---- events that lead from one state to another ---------------------------------------------


def difference(
    before: SchedulerState, after: SchedulerState, sequences: dict[int, Any], plan: Any = None
) -> Iterator[Event]:
    """Events that turn `before` into `after`, in an order in which they can happen; `plan` tells who was preempted why.

    `sequences` has every sequence of either state by its id.
    """
    live_before, live_after = {*before.waiting, *before.running}, {*after.waiting, *after.running}
    for seq_id in [seq_id for seq_id in after.waiting if seq_id not in live_before]:
        yield Event(0, "arrive", seq_id, None, {"num_prompt_tokens": sequences[seq_id].num_prompt_tokens})
    yield from _registered(before, after)
    victims = [seq_id for seq_id in reversed(before.running) if seq_id in after.waiting]
    for seq_id in victims:
        yield Event(0, "preempt", seq_id, None, {"on_behalf_of": _beneficiary(plan, seq_id)})
        yield from _given_up(before, seq_id)
    for seq_id in sorted(live_before - live_after):
        yield _end(seq_id, sequences[seq_id], before)
        table = before.block_tables.get(seq_id, [])
        if all(after.ref_counts[block_id] < before.ref_counts[block_id] for block_id in table):  # else a leak: it shows
            yield from _given_up(before, seq_id)
    yield from _forgotten(before, after)
    yield from _taken(before, after, sequences, victims)
    for seq_id in [seq_id for seq_id in after.running if seq_id not in before.running]:
        yield Event(0, "run", seq_id)


def _beneficiary(plan: Any, seq_id: int) -> int:
    for record in getattr(plan, "preempted", ()):
        if record.victim == seq_id:
            return int(record.on_behalf_of)
    return seq_id


def _end(seq_id: int, seq: Any, before: SchedulerState) -> Event:
    reason = str(seq.finish_reason)
    if reason == "abort":
        return Event(0, "abort", seq_id)
    late = {} if seq_id in before.running else {"late": "waiting"}
    return Event(0, "finish", seq_id, None, {"reason": reason, **late})


def _given_up(before: SchedulerState, seq_id: int) -> Iterator[Event]:
    for block_id in reversed(before.block_tables.get(seq_id, [])):
        yield Event(0, "release", seq_id, block_id)


def _taken(
    before: SchedulerState, after: SchedulerState, sequences: dict[int, Any], victims: list[int]
) -> Iterator[Event]:
    """Blocks that joined tables: as hits where a block kept its hash, else as new ones."""
    held = {block for seq_id, table in before.block_tables.items() for block in table if seq_id not in victims}
    forgotten: set[int] = set()
    for seq_id in (*before.running, *after.running, *after.waiting):
        table = after.block_tables.get(seq_id, [])
        had = [] if seq_id in victims else before.block_tables.get(seq_id, [])
        new = table[len(had) :]
        if seq_id in forgotten or not new:
            continue
        forgotten.add(seq_id)
        cached = sequences[seq_id].num_cached_tokens if not had else 0
        if not had:
            yield Event(0, "admit", seq_id, None, {"num_cached_tokens": cached, "miss_hash": None})
        num_hits = cached // sequences[seq_id].block_size
        for position, block_id in enumerate(new):
            kind = "allocate" if position >= num_hits else "share" if block_id in held else "reuse"
            yield Event(0, kind, seq_id, block_id)
            held.add(block_id)


def _forgotten(before: SchedulerState, after: SchedulerState) -> Iterator[Event]:
    """Blocks that lost their hash: taken for something else, or superseded by a twin."""
    for block_id, (old, new) in enumerate(zip(before.hashes, after.hashes, strict=True)):
        if old != NO_HASH and new == NO_HASH:
            yield Event(0, "evict_hash", None, block_id, {"hash": old})


def _registered(before: SchedulerState, after: SchedulerState) -> Iterator[Event]:
    """Blocks that became findable; of twins the one that is found comes last."""
    changed = [b for b, h in enumerate(after.hashes) if h not in (NO_HASH, before.hashes[b])]
    owners = {block_id: seq_id for seq_id, table in before.block_tables.items() for block_id in table}
    for block_id in sorted(changed, key=lambda b: after.hash_index.get(after.hashes[b]) == b):
        yield Event(0, "register_hash", owners.get(block_id), block_id, {"hash": after.hashes[block_id]})
