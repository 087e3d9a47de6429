"""Assignment 5: runs under a student's policy, and how long sequences that could decode stand still in them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from types import FrameType, FunctionType
from typing import Any

from nanoinfer.core.plan import StepPlan
from nanoinfer.core.policies import POLICIES
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.course.grading.adapter import expect_none_lost, queued, run_bounded
from nanoinfer.course.grading.failures import explain_failure
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import OnStep, Trace

MAX_STEPS = 1000
BOUND = "while a sequence is ready to decode, at most `patience` steps in a row pass without a decode"

LOOPS = {  # those of nanoinfer's own policies, by the id of their code: an alias or a copy of a function shares it
    id(function.__code__): f"{cls.__name__}.{name}"
    for cls in POLICIES.values()
    for name, function in vars(cls).items()
    if isinstance(function, FunctionType) and (cls is not Scheduler or name in ("schedule", "_prefill", "_decode"))
}


def run_policy(policy: type[Scheduler], patience: int, on_step: OnStep | None = None, **run: Any) -> Trace:
    """`simulate` with the student's scheduler class and this patience.

    Raises:
        AssertionError: the run does not end or is stuck, a sequence is lost, or a loop of nanoinfer's own was called.
    """

    class Fair(policy):  # type: ignore[misc, valid-type]  # any class will do
        def schedule(self) -> StepPlan:
            before = queued(self)
            plan: StepPlan = super().schedule()
            expect_own(called)
            expect_none_lost(before, self, f"schedule() of step {self.recorder.step}")
            self.checked(plan)
            return plan

    Fair.patience = patience
    with loops_called() as called:
        trace = run_bounded(MAX_STEPS, on_step, **run, scheduler_cls=Fair)
    expect_own(called)
    return trace


@contextmanager
def loops_called() -> Iterator[list[str]]:
    """The names of nanoinfer's own loops that are called meanwhile, in whatever way."""
    called: list[str] = []

    def look(frame: FrameType, event: str, _arg: Any) -> None:
        if event == "call" and id(frame.f_code) in LOOPS:
            called.append(LOOPS[id(frame.f_code)])

    before = sys.getprofile()
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield called
        if sys.getprofile() is not look:
            called.append("sys.setprofile")
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


def expect_own(called: list[str]) -> None:
    """Raise AssertionError if the policy called a loop of nanoinfer's; it may have caught what that raised."""
    if called:
        raise AssertionError(f"the policy calls nanoinfer's own {called[0]}; read it, and write yours yourself")


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
    """Raise AssertionError if more than `patience` steps in a row pass without a decode while one is ready."""
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
