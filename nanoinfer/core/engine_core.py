"""The step loop without a model: schedule, run, postprocess, record.

The real engine and the simulator both drive this class; they differ only in the runner and the
clock they hand it. It owns request ids, the scheduler and the trace being recorded. It knows
token ids, no text, and it imports no torch.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Protocol

from nanoinfer import __version__
from nanoinfer.config import EngineConfig
from nanoinfer.core.block_manager import BlockManager
from nanoinfer.core.interrupt import uninterrupted
from nanoinfer.core.plan import StepPlan
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.core.sequence import Sequence
from nanoinfer.sampling_params import SamplingParams
from nanoinfer.trace.recorder import NULL_RECORDER, Recorder, TraceRecorder
from nanoinfer.trace.state import snapshot
from nanoinfer.trace.steps import Step, columns_of
from nanoinfer.trace.trace import Header, OnStep, Request, Trace


class Runner(Protocol):
    """Computes a plan: one sampled token id per row (that of a middle chunk is ignored)."""

    def run(self, plan: StepPlan) -> list[int]: ...


class EngineCore:
    """Owns the requests of one engine and advances them step by step.

    Args:
        config: resolved settings.
        runner: computes a plan.
        clock: the time in `clock_unit`s; only differences matter.
        device: what the trace header says the run was on.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        clock: Callable[[], float],
        clock_unit: str,
        device: str,
        scheduler_cls: type[Scheduler] = Scheduler,
        block_manager_cls: type[BlockManager] = BlockManager,
    ) -> None:
        self.config = config
        self.runner = runner
        self.scheduler = scheduler_cls(config, block_manager_cls)
        self.sequences: dict[int, Sequence] = {}
        self.next_id = 0
        self._clock, self._clock_unit, self._device = clock, clock_unit, device
        self._finished: list[Sequence] = []
        self._trace: Trace | None = None
        self._recorder = TraceRecorder([])
        self._on_step: OnStep | None = None
        self._started_at = 0.0

    # ---- requests -------------------------------------------------------------------------

    def add(
        self, token_ids: list[int], params: SamplingParams, prompt: str | None = None, arrival: float | None = None
    ) -> int:
        """Queue a request and return its id (counted per engine from 0).

        Args:
            token_ids: the prompt.
            params: how to sample and when to stop.
            prompt: the text the ids came from, for the record.
            arrival: when it was submitted, if that was before now (it waited for the step in flight).

        Raises:
            ValueError: it is refused; nothing is queued.
        """
        seq = Sequence(self.next_id, token_ids, params, self.config.kvcache_block_size, prompt)
        with uninterrupted():
            self.scheduler.add(seq)
            self.next_id += 1
            self.sequences[seq.seq_id] = seq
            if self._trace:
                self._record_request(self._trace, seq, self._now() if arrival is None else arrival)
        return seq.seq_id

    def abort(self, seq_id: int) -> Sequence:
        """Drop a live request, free its blocks and return it. Raises ValueError for an unknown id."""
        with uninterrupted():
            self.scheduler.abort(seq_id)
            return self.sequences.pop(seq_id)

    def drop(self, seq_ids: Iterable[int]) -> None:
        """Abort those of `seq_ids` that are live, and forget the results of the others nobody has seen."""
        with uninterrupted():
            for seq_id in set(seq_ids) & self.sequences.keys():
                # A step that failed half way may have retired it in the scheduler already.
                if not self.sequences.pop(seq_id).is_finished:
                    self.scheduler.abort(seq_id)
            self._finished = [seq for seq in self._finished if seq.seq_id not in set(seq_ids)]

    def is_finished(self) -> bool:
        """Whether nothing is queued and no result waits to be returned."""
        return self.scheduler.is_finished() and not self._finished

    # ---- one step -------------------------------------------------------------------------

    def step(self) -> list[Sequence]:
        """Run one step and return the sequences that finished in it.

        If the runner fails or is interrupted, the step is undone: its rows go back to `waiting`
        and will be recomputed, so the engine stays usable. What finished in a step whose end was
        interrupted is returned by the next call.
        """
        plan = None
        try:
            if self.scheduler.is_finished():
                return self._take_finished()
            times = [self._now()]
            with uninterrupted():
                plan = self.scheduler.schedule()
            times.append(self._now())
            token_ids = self.runner.run(plan)
            times.append(self._now())
            with uninterrupted():
                self._commit(plan, token_ids, times)
                plan = None
        except BaseException:
            with uninterrupted():
                if plan:
                    self._undo(plan)
            raise
        if self._trace and self._on_step:
            self._on_step(self._trace, len(self._trace.steps) - 1)
        return self._take_finished()

    def _take_finished(self) -> list[Sequence]:
        finished, self._finished = self._finished, []
        return finished

    def _commit(self, plan: StepPlan, token_ids: list[int], times: list[float]) -> None:
        self.scheduler.postprocess(plan, token_ids)
        times.append(self._now())
        done = [row.seq_id for row in plan.rows if row.seq.is_finished and row.seq_id in self.sequences]
        self._finished += [self.sequences.pop(seq_id) for seq_id in done]
        if self._trace:
            self._record_step(self._trace, plan, times)

    def _undo(self, plan: StepPlan) -> None:
        for row in reversed(plan.rows):
            if row.seq in self.scheduler.running:
                self.scheduler.running.remove(row.seq)
                self.scheduler.preempt(row.seq)
            elif row.chunk and row.seq in self.scheduler.waiting:  # a middle chunk: the ones before it still hold
                row.seq.num_scheduled_tokens = 0
                row.seq.num_chunks -= 1

    # ---- recording ------------------------------------------------------------------------

    @property
    def trace(self) -> Trace | None:
        """The trace being recorded, if any."""
        return self._trace

    def start_trace(self, versions: dict[str, str] | None = None, on_step: OnStep | None = None) -> Trace:
        """Begin a new trace; it grows with each step. Raises RuntimeError if one is being recorded."""
        if self._trace:
            raise RuntimeError("a trace is already being recorded; call stop_trace() first")
        self._started_at = self._clock()
        header = Header(
            config=self.config.to_dict(),
            clock_unit=self._clock_unit,
            scheduler_cls=_qualified_name(self.scheduler),
            block_manager_cls=_qualified_name(self.scheduler.block_manager),
            versions={"python": platform.python_version(), "nanoinfer": __version__, **(versions or {})},
            device=self._device,
            initial=snapshot(self.scheduler),
        )
        self._trace = Trace(header)
        for seq in self.sequences.values():
            self._record_request(self._trace, seq, None)
        self._recorder = TraceRecorder(self._trace.events)
        self._on_step = on_step
        self._record_to(self._recorder)
        return self._trace

    def stop_trace(self) -> Trace:
        """End the recording and return the trace. Raises RuntimeError if none is being recorded."""
        if self._trace is None:
            raise RuntimeError("no trace is being recorded; call start_trace() first")
        trace, self._trace, self._on_step = self._trace, None, None
        self._record_to(NULL_RECORDER)
        return trace

    def _record_to(self, recorder: Recorder) -> None:
        self.scheduler.recorder = recorder
        self.scheduler.block_manager.recorder = recorder

    def _now(self) -> float:
        return self._clock() - self._started_at

    def _record_request(self, trace: Trace, seq: Sequence, arrival: float | None) -> None:
        params = seq.sampling_params.to_dict()
        trace.requests[seq.seq_id] = Request(seq.seq_id, arrival, seq.prompt_token_ids, params, seq.prompt)

    def _record_step(self, trace: Trace, plan: StepPlan, times: list[float]) -> None:
        names = ("schedule", "run", "postprocess")
        timing = {name: end - start for name, (start, end) in zip(names, pairwise(times), strict=True)}
        trace.steps.append(
            Step(
                index=len(trace.steps),
                clock=times[0],
                phase=plan.phase,
                columns=columns_of(plan.rows),
                preempted=list(plan.preempted),
                stop=plan.stop,
                decode_stop=plan.decode_stop,
                timing=timing | {"duration": times[-1] - times[0]},
                trace=trace,
            )
        )
        self._recorder.step = len(trace.steps)


def request_output(seq: Sequence, text: str | None = None) -> dict[str, Any]:
    """The result of a request as the public API returns it."""
    return {
        "request_id": seq.seq_id,
        "prompt": seq.prompt,
        "text": text,
        "token_ids": seq.completion_token_ids,
        "finish_reason": None if seq.finish_reason is None else str(seq.finish_reason),
        "num_prompt_tokens": seq.num_prompt_tokens,
        "num_preemptions": seq.num_preemptions,
    }


def _qualified_name(instance: object) -> str:
    return f"{type(instance).__module__}.{type(instance).__qualname__}"
