"""What a run stops at."""

from __future__ import annotations

from collections.abc import Callable

from nanoinfer.sampling_params import as_int
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace

Goal = Callable[[Step], str | None]  # after a step: why the run ends with it, or None

NAMES = ("finish", "preemption")


def goal_of(until: str | int | None, trace: Trace) -> Goal:
    """The goal called `until`; None is never reached.

    Raises:
        ValueError: no such goal, or a step that has already run.
    """
    if until is None:
        return lambda _step: None
    if until == "finish":
        return lambda step: _finished(trace, step)
    if until == "preemption":
        return _preempted
    if isinstance(until, str):
        raise ValueError(f"until must be one of {', '.join(map(repr, NAMES))} or a step number, got {until!r}")
    number = as_int("step", until)
    if number < len(trace.steps):
        raise ValueError(f"step {number} has already run; the next one is step {len(trace.steps)}")
    return lambda step: f"Stopped at step {number}." if step.index >= number else None


def _finished(trace: Trace, step: Step) -> str | None:
    ids: list[int] = []
    for event in reversed(trace.events):
        if event.step < step.index:
            break
        if event.kind == "finish" and event.step == step.index and event.seq_id is not None:
            ids.append(event.seq_id)
    return f"Stopped at step {step.index}: {_listed(sorted(ids))} finished." if ids else None


def _preempted(step: Step) -> str | None:
    if not step.preempted:
        return None
    victims = [record.victim for record in step.preempted]
    return f"Stopped at step {step.index}: {_listed(victims)} {'was' if len(victims) == 1 else 'were'} preempted."


def _listed(ids: list[int]) -> str:
    """Like "sequence 3" or "sequences 3 and 4"."""
    if len(ids) == 1:
        return f"sequence {ids[0]}"
    return f"sequences {', '.join(map(str, ids[:-1]))} and {ids[-1]}"
