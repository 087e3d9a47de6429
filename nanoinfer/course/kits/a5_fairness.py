"""Assignment 5: a policy in the seat of the real one, and how long those who could decode stand still under it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

from nanoinfer.core.plan import StepPlan
from nanoinfer.core.policies import mixed, prefill_first
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.course.grading.adapter import StepLimit, expect_nobody_lost, queued
from nanoinfer.course.grading.failures import explain_failure
from nanoinfer.sim.simulate import simulate
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace

MAX_STEPS = 1000
OURS = {mixed.__file__, prefill_first.__file__}
PROGRESS = "every step must get on with the work"
BOUND = "while somebody is ready to decode, at most `patience` steps in a row pass without a decode"


def seat(policy: Callable[..., StepPlan], *args: Any) -> type[Scheduler]:
    """A scheduler that is nanoinfer's but for its policy, which is called as policy(scheduler, *args)."""

    class Seat(Scheduler):
        def __init__(self, *init: Any) -> None:
            super().__init__(*init)
            self.policy = decide

    def decide(scheduler: Any) -> StepPlan:
        before = queued(scheduler)
        sys.setprofile(_refuse_ours)
        try:
            plan = policy(scheduler, *args)
        finally:
            sys.setprofile(None)
        expect_nobody_lost(before, scheduler, f"the policy's call in step {scheduler.recorder.step}")
        return plan

    return Seat


def _refuse_ours(frame: FrameType, event: str, _arg: Any) -> None:
    """Called at every call of a policy in its seat: it may use the scheduler's moves, not nanoinfer's own policies."""
    if event == "call" and frame.f_code.co_filename in OURS:
        own = f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"
        raise AssertionError(f"the policy calls nanoinfer's own {own}; read it, and write yours yourself")


def run_policy(policy: Callable[..., StepPlan], *args: Any, **run: Any) -> Trace:
    """`simulate` with `policy(scheduler, *args)`. Raises AssertionError if the run does not end, or is stuck."""
    seen: list[Trace] = []

    def cap(trace: Trace, index: int) -> None:
        seen[:] = [trace]
        if index >= MAX_STEPS:
            raise StepLimit(explain_failure(trace, index, "the run to have ended", PROGRESS))

    try:
        return simulate(**run, scheduler_cls=seat(policy, *args), on_step=cap)
    except NotImplementedError:
        raise
    except RuntimeError as error:
        if not seen:
            raise
        stuck = explain_failure(seen[0], -1, f"a step after this one, got {error}", PROGRESS)
        raise AssertionError(stuck) from None


def ready_before(trace: Trace) -> Iterator[tuple[Step, set[int]]]:
    """Each step with the sequences that could have decoded in it: they have a sampled token and all KV before it."""
    ready: set[int] = set()
    for step in trace.steps:
        yield step, set(ready)
        ready -= {victim.victim for victim in step.preempted}
        ready |= {row.seq_id for row in step.rows if row.token_id is not None}
        ready &= {*step.waiting, *step.running}  # who has finished is in no queue


def decoding(step: Step) -> list[int]:
    """The sequences that decode in this step."""
    return [row.seq_id for row in step.rows if row.chunk is None]


def expect_bound(trace: Trace, patience: int) -> None:
    """Raise AssertionError if more than `patience` steps in a row pass without a decode although somebody is ready."""
    stuck = [(step.index, bool(ready) and not decoding(step)) for step, ready in ready_before(trace)]
    for still, group in groupby(stuck, key=lambda pair: pair[1]):
        steps = [index for index, _ in group]
        if still and len(steps) > patience:
            late = steps[patience]
            raise AssertionError(explain_failure(trace, late, f"a decode step after {patience} without one", BOUND))


def expect_phases(trace: Trace, letters: str, why: str) -> None:
    """Raise AssertionError unless the steps are prefill (p), decode (d) and mixed (m) as `letters` say."""
    got = "".join(step.phase[0] for step in trace.steps)
    if got != letters:
        pairs = enumerate(zip(got, letters, strict=False))
        step = next((i for i, (a, b) in pairs if a != b), min(len(got), len(letters)) - 1)
        raise AssertionError(explain_failure(trace, step, f"the phases {letters}, got {got}", why))
