"""What is in flight: a plan that was launched on the device, before its tokens are known.

The device runs what was launched in order, so a plan may build on one whose tokens have not reached the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nanoinfer.core.engine_core import Runner
from nanoinfer.core.plan import StepPlan, StepResult
from nanoinfer.core.trace_builder import StepTimes

PENDING = -1  # the id of a token that was sampled on the device and is not known here yet


class Launch(Protocol):
    """A plan that the device computes or will compute."""

    def result(self) -> StepResult:
        """Wait for the sampled tokens. After an interrupt it can be called again."""


class LaunchingRunner(Runner, Protocol):
    """Computes plans in the order in which they are launched; `launch` may return before anything is computed.

    A row whose sequence ends in PENDING takes that token from its sequence's row in the plan launched before.
    """

    def launch(self, plan: StepPlan) -> Launch: ...


@dataclass(frozen=True, slots=True)
class Done:
    """A plan that was computed when it was launched."""

    computed: StepResult

    def result(self) -> StepResult:
        return self.computed


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """A plan on its way through the loop. `launch` is None until it is launched."""

    plan: StepPlan
    times: StepTimes
    launch: Launch | None = None

    def result(self) -> StepResult:
        assert self.launch is not None, "a result without a launch"
        return self.launch.result()
