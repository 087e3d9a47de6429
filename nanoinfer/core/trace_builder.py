"""The trace of an engine while it grows: events get the number of their step, computed plans become its steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from nanoinfer.core.plan import StepPlan, StepResult
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.core.sequence import Sequence
from nanoinfer.trace.recorder import NULL_RECORDER, Recorder, TraceRecorder
from nanoinfer.trace.steps import Step, columns_of
from nanoinfer.trace.trace import Header, OnStep, Request, Trace


@dataclass(slots=True, eq=False)
class StepTimes:
    """When a step was scheduled, and where its time went.

    Attributes:
        clock: when `schedule()` was called for it.
        index: the step it is recorded as.
        timing: time by part.
        mark: when the newest part ended.
    """

    clock: float
    index: int
    timing: dict[str, float] = field(default_factory=dict)
    mark: float = 0.0

    def __post_init__(self) -> None:
        self.mark = self.clock

    def lap(self, name: str, now: float) -> None:
        """Add the time since `mark` to part `name`; the next part begins `now`."""
        self.timing[name] = self.timing.get(name, 0.0) + now - self.mark
        self.mark = now


class TraceBuilder:
    """Records a scheduler from now on.

    Args:
        header: the header of the trace.
        scheduler: whose events are recorded, and its block manager's.
        on_step: called as on_step(trace, i) by `notify` for each new step.
    """

    def __init__(self, header: Header, scheduler: Scheduler, on_step: OnStep | None) -> None:
        self.trace = Trace(header)
        self._recorder = TraceRecorder(self.trace.events)
        self._scheduler, self._on_step = scheduler, on_step
        self._notified = 0
        self._record_to(self._recorder)

    @property
    def next_index(self) -> int:
        """The step that events are stamped with."""
        return self._recorder.step

    def request(self, seq: Sequence, arrival: float | None) -> None:
        """A new request; `arrival` is None if it came before the recording began."""
        params = seq.sampling_params.to_dict()
        self.trace.requests[seq.seq_id] = Request(seq.seq_id, arrival, seq.prompt_token_ids, params, seq.prompt)

    def begin_next(self, times: StepTimes) -> None:
        """Events from now on belong to the next step."""
        self._recorder.step = times.index + 1

    def add_step(self, plan: StepPlan, result: StepResult, times: StepTimes) -> None:
        """The tokens of this step are taken in."""
        self.trace.steps.append(
            Step(
                index=times.index,
                clock=times.clock,
                phase=plan.phase,
                columns=columns_of(plan.rows),
                preempted=list(plan.preempted),
                stop=plan.stop,
                decode_stop=plan.decode_stop,
                timing=result.timing | times.timing | {"duration": times.mark - times.clock},
                trace=self.trace,
                graph_size=result.graph_size,
            )
        )

    def rewind(self) -> None:
        """Steps whose tokens never came are undone: what they changed belongs to the next step that lands."""
        self._recorder.rewind(len(self.trace.steps))

    def notify(self) -> None:
        """Call on_step for every step that landed since the last time."""
        while self._notified < len(self.trace.steps):
            self._notified += 1
            if self._on_step:
                self._on_step(self.trace, self._notified - 1)

    def stop(self) -> None:
        """Record nothing more."""
        self._record_to(NULL_RECORDER)

    def _record_to(self, recorder: Recorder) -> None:
        self._scheduler.recorder = recorder
        self._scheduler.block_manager.recorder = recorder
