"""The step loop without a model: schedule, run, take in the tokens, record.

The real engine and the simulator both drive this class; they differ only in the runner and the clock they hand it. It
owns request ids, the scheduler and the trace being recorded. It knows token ids, no text, and it imports no torch.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from typing import Protocol

from nanoinfer import __version__
from nanoinfer.config import EngineConfig
from nanoinfer.core.block_manager import BlockManager
from nanoinfer.core.interrupt import uninterrupted
from nanoinfer.core.plan import StepPlan, StepResult
from nanoinfer.core.scheduler import Scheduler, scheduler_class
from nanoinfer.core.sequence import Sequence
from nanoinfer.core.trace_builder import StepTimes, TraceBuilder
from nanoinfer.sampling_params import SamplingParams
from nanoinfer.trace.state import snapshot
from nanoinfer.trace.trace import Header, OnStep, Trace


class Runner(Protocol):
    """Computes a plan."""

    def run(self, plan: StepPlan) -> StepResult: ...


class EngineCore:
    """Owns the requests of one engine and advances them step by step.

    Args:
        config: resolved settings.
        runner: computes each plan.
        clock: the time in `clock_unit`s; only differences matter.
        clock_unit: "steps" or "seconds", for the trace header.
        device: what the trace header says the run was on.
        scheduler_cls: by default the class that `config.policy` names.
        block_manager_cls: called with (num_blocks, block_size).

    Raises:
        ValueError: `config.policy` is unknown, or names another class than `scheduler_cls`.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        clock: Callable[[], float],
        clock_unit: str,
        device: str,
        scheduler_cls: type[Scheduler] | None = None,
        block_manager_cls: type[BlockManager] = BlockManager,
    ) -> None:
        self.config = config
        self.scheduler = self._fitted(scheduler_class(config.policy, scheduler_cls))(config, block_manager_cls)
        self.runner = runner
        self.sequences: dict[int, Sequence] = {}
        self.next_id = 0
        self._clock, self._clock_unit, self._device = clock, clock_unit, device
        self._finished: list[Sequence] = []
        self._plan: StepPlan | None = None  # scheduled, but its tokens are not taken in
        self._builder: TraceBuilder | None = None
        self._started_at = 0.0

    def _fitted(self, cls: type[Scheduler]) -> type[Scheduler]:
        """`cls` with what this loop needs of a scheduler; the plain loop needs nothing more."""
        return cls

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
            if self._builder:
                self._builder.request(seq, self._now() if arrival is None else arrival)
        return seq.seq_id

    def abort(self, seq_id: int) -> Sequence:
        """Drop a live request, free its blocks and return it. Raises ValueError for an unknown id."""
        with uninterrupted():
            self.scheduler.abort(seq_id)
            return self.sequences.pop(seq_id)

    def drop(self, seq_ids: Iterable[int]) -> None:
        """Abort those of `seq_ids` that are live, and forget the results of the others."""
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

        If the runner fails or is interrupted, the step is undone: its rows go back to `waiting` and will be recomputed,
        so the engine stays usable. What finished in a step whose end was interrupted is returned by the next call.
        """
        self._step()
        if self._builder:
            self._builder.notify()
        return self.take_finished()

    def take_finished(self) -> list[Sequence]:
        """The sequences that have finished since the last call: what `step` returns."""
        finished, self._finished = self._finished, []
        return finished

    def _step(self) -> None:
        if self.scheduler.is_finished():
            return
        times = StepTimes(self._now(), self.next_index)
        try:
            with uninterrupted():
                self._plan = plan = self.scheduler.schedule()
            times.lap("schedule", self._now())
            result = self.runner.run(plan)
            times.lap("run", self._now())
            with uninterrupted():
                self.scheduler.postprocess(plan, result.token_ids)
                times.lap("postprocess", self._now())
                self._begin_next(times)
                self._finish_step(plan, result, times)
                self._plan = None
        except BaseException:
            with uninterrupted():
                undone, self._plan = self._plan, None
                if undone:
                    self.scheduler.undo(undone)
            raise

    def _begin_next(self, times: StepTimes) -> None:
        if self._builder:
            self._builder.begin_next(times)

    def _finish_step(self, plan: StepPlan, result: StepResult, times: StepTimes) -> None:
        """Hand out what finished with the tokens of `plan`, and record the step."""
        done = [row.seq_id for row in plan.rows if row.seq.is_finished and row.seq_id in self.sequences]
        self._finished += [self.sequences.pop(seq_id) for seq_id in done]
        if self._builder:
            self._builder.add_step(plan, result, times)

    # ---- recording ------------------------------------------------------------------------

    @property
    def trace(self) -> Trace | None:
        """The trace being recorded, if any."""
        return self._builder.trace if self._builder else None

    @property
    def next_index(self) -> int:
        """The step that is recorded next."""
        return self._builder.next_index if self._builder else 0

    def settle(self) -> None:
        """Bring the engine to rest and the trace up to date; after a plain step both are."""
        if self._builder:
            self._builder.notify()

    def start_trace(self, versions: dict[str, str] | None = None, on_step: OnStep | None = None) -> Trace:
        """Begin a new trace at rest; it grows with each step. Raises RuntimeError if one is being recorded."""
        if self._builder:
            raise RuntimeError(
                "a trace is already being recorded, by start_trace() or by a live explorer: stop_trace(), or the "
                "explorer's close(), ends it"
            )
        self.settle()
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
        self._builder = TraceBuilder(header, self.scheduler, on_step)
        for seq in self.sequences.values():
            self._builder.request(seq, None)
        return self._builder.trace

    def stop_trace(self) -> Trace:
        """Bring the engine to rest, end the recording and return the trace.

        Raises:
            RuntimeError: none is being recorded.
        """
        if self._builder is None:
            raise RuntimeError("no trace is being recorded; call start_trace() first")
        builder = self._builder
        try:
            self.settle()
        finally:
            self._builder = None
            builder.stop()
        return builder.trace

    def _now(self) -> float:
        return self._clock() - self._started_at


def _qualified_name(instance: object) -> str:
    return f"{type(instance).__module__}.{type(instance).__qualname__}"
