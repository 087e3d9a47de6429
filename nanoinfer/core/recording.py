"""The trace of an engine while it grows: it stamps events, turns landed plans into steps and tells who listens."""

from __future__ import annotations

from nanoinfer.core.pending import Flight
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.core.sequence import Sequence
from nanoinfer.trace.recorder import NULL_RECORDER, Recorder, TraceRecorder
from nanoinfer.trace.steps import Step, columns_of
from nanoinfer.trace.trace import Header, OnStep, Request, Trace


class Recording:
    """Records a scheduler from now on.

    Args:
        header: of the trace.
        scheduler: whose events are recorded, and its block manager's.
        on_step: called as on_step(trace, i) by `tell` for each new step.
    """

    def __init__(self, header: Header, scheduler: Scheduler, on_step: OnStep | None) -> None:
        self.trace = Trace(header)
        self._recorder = TraceRecorder(self.trace.events)
        self._scheduler, self._on_step = scheduler, on_step
        self._told = 0
        self._record_to(self._recorder)

    @property
    def next_index(self) -> int:
        """The step that events are stamped with."""
        return self._recorder.step

    def request(self, seq: Sequence, arrival: float | None) -> None:
        """Somebody asked for something; `arrival` is None if that was before the recording."""
        params = seq.sampling_params.to_dict()
        self.trace.requests[seq.seq_id] = Request(seq.seq_id, arrival, seq.prompt_token_ids, params, seq.prompt)

    def decided(self, flight: Flight) -> None:
        """All is done that belongs to this step but its tokens; what happens now belongs to the next."""
        self._recorder.step = flight.index + 1

    def landed(self, flight: Flight, now: float) -> None:
        """The tokens of this step are known."""
        plan, pending = flight.plan, flight.pending
        assert pending is not None, "landed without a launch"
        self.trace.steps.append(
            Step(
                index=flight.index,
                clock=flight.clock,
                phase=plan.phase,
                columns=columns_of(plan.rows),
                preempted=list(plan.preempted),
                stop=plan.stop,
                decode_stop=plan.decode_stop,
                timing=pending.timing | flight.timing | {"duration": now - flight.clock},
                trace=self.trace,
                graph_size=pending.graph_size,
            )
        )

    def rewind(self) -> None:
        """Steps whose tokens never came are undone: what they changed belongs to the next step that lands."""
        self._recorder.rewind(len(self.trace.steps))

    def tell(self) -> None:
        """Call on_step for every step that landed since the last time."""
        while self._told < len(self.trace.steps):
            self._told += 1
            if self._on_step:
                self._on_step(self.trace, self._told - 1)

    def stop(self) -> None:
        """Record nothing more."""
        self._record_to(NULL_RECORDER)

    def _record_to(self, recorder: Recorder) -> None:
        self._scheduler.recorder = recorder
        self._scheduler.block_manager.recorder = recorder
