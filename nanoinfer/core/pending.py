"""The device's side of a step: a plan is launched, and its tokens are waited for later.

`launch` may return before anything is computed. The device runs what was launched in order, so a
plan may build on one whose tokens nobody on the CPU has seen yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from nanoinfer.core.plan import StepPlan
from nanoinfer.core.sequence import PENDING


class Pending(Protocol):
    """A launched plan.

    Attributes:
        timing: clock units by name, e.g. "launch" and "gpu"; complete once `result` has returned.
        graph_size: batch size of the CUDA graph that was replayed, padding included; None if none was.
    """

    timing: dict[str, float]
    graph_size: int | None

    def result(self) -> list[int]:
        """Wait for one sampled token id per row. After an interrupt it can be called again."""


class Runner(Protocol):
    """Computes plans in the order in which they are launched.

    A row whose sequence ends in PENDING takes that token from its sequence's row in the plan launched before.
    """

    def launch(self, plan: StepPlan) -> Pending: ...


@dataclass(slots=True)
class Done:
    """A plan that was computed when it was launched."""

    token_ids: list[int]
    timing: dict[str, float] = field(default_factory=dict)
    graph_size: int | None = None

    def result(self) -> list[int]:
        return self.token_ids


class AtOnce:
    """Launches for a runner that has only `run(plan) -> token ids`: the plan is computed before `launch` returns."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._sampled: dict[int, int] = {}  # by the plan launched last

    def launch(self, plan: StepPlan) -> Done:
        """Run `plan`, with every pending token filled in for as long as that takes."""
        fed = [row.seq for row in plan.rows if row.seq.last_token == PENDING]
        try:
            for seq in fed:
                seq.token_ids[-1] = self._sampled[seq.seq_id]
            token_ids = self._runner.run(plan)
        finally:
            for seq in fed:
                seq.token_ids[-1] = PENDING
        self._sampled = dict(zip((row.seq_id for row in plan.rows), token_ids, strict=False))
        return Done(token_ids)


def as_runner(runner: Any) -> Runner:
    """`runner` itself if it can launch, else one that launches by running at once."""
    return runner if hasattr(runner, "launch") else AtOnce(runner)


@dataclass(slots=True, eq=False)
class Flight:
    """A plan on its way through the loop, with the times it took so far.

    Attributes:
        clock: when `schedule()` was called for it.
        index: the step it is recorded as.
        pending: None until it is launched.
    """

    plan: StepPlan
    clock: float
    index: int
    pending: Pending | None = None
    timing: dict[str, float] = field(default_factory=dict)
    mark: float = 0.0

    def result(self) -> list[int]:
        """Wait for one sampled token id per row."""
        assert self.pending is not None, "a result without a launch"
        return self.pending.result()

    def lap(self, name: str, now: float) -> None:
        """Add the time since `mark` to part `name`; the next part begins `now`."""
        self.timing[name] = self.timing.get(name, 0.0) + now - self.mark
        self.mark = now
