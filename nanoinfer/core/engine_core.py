"""The step loop without a model: schedule, launch, wait, take in the tokens, record.

The real engine and the simulator both drive this class; they differ only in the runner and the
clock they hand it. It owns request ids, the scheduler and the trace being recorded. It knows
token ids, no text, and it imports no torch.

    plain       | schedule n | device n | take in n | schedule n+1 | device n+1 | ...

    overlapped  | schedule n+1, launch | wait for n | take in n | schedule n+2, launch | ...
    the device  |----------- n -----------|--------------- n+1 --------------|---- ...
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from typing import Any

from nanoinfer import __version__
from nanoinfer.config import EngineConfig
from nanoinfer.core.block_manager import BlockManager
from nanoinfer.core.interrupt import uninterrupted
from nanoinfer.core.pending import Flight, as_runner
from nanoinfer.core.plan import StepPlan
from nanoinfer.core.recording import Recording
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.core.sequence import Sequence
from nanoinfer.sampling_params import SamplingParams
from nanoinfer.trace.state import snapshot
from nanoinfer.trace.trace import Header, OnStep, Trace


class EngineCore:
    """Owns the requests of one engine and advances them step by step.

    Args:
        config: resolved settings; `overlap` chooses the loop, None means plain.
        runner: computes plans, by `launch` (see `Runner`) or, without that, by `run(plan) -> token ids`.
        clock: the time in `clock_unit`s; only differences matter.
        device: what the trace header says the run was on.

    Raises:
        TypeError: `overlap` with a scheduler that cannot (see `can_overlap`).
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Any,
        clock: Callable[[], float],
        clock_unit: str,
        device: str,
        scheduler_cls: type[Scheduler] = Scheduler,
        block_manager_cls: type[BlockManager] = BlockManager,
    ) -> None:
        if config.overlap and not can_overlap(scheduler_cls):
            raise TypeError(
                f"overlap=True needs a scheduler whose advance() and resolve() do what its postprocess() does, and "
                f"{scheduler_cls.__name__} has a postprocess() of its own; give it both, or set overlap=False"
            )
        self.config = config
        self.scheduler = scheduler_cls(config, block_manager_cls)
        self.sequences: dict[int, Sequence] = {}
        self.next_id = 0
        self.runner = runner
        self._launcher = as_runner(runner)
        self._clock, self._clock_unit, self._device = clock, clock_unit, device
        self._finished: list[Sequence] = []
        self._launched: Flight | None = None  # scheduled, and the scheduler does not count on it yet
        self._awaiting: Flight | None = None  # advanced, its tokens not known yet
        self._must_wait = False  # a launch failed: nothing is scheduled before `_awaiting` is resolved
        self._recording: Recording | None = None
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
            if self._recording:
                self._recording.request(seq, self._now() if arrival is None else arrival)
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
            if not self.sequences:  # nobody waits for what is in flight
                self._settle()
            self._finished = [seq for seq in self._finished if seq.seq_id not in set(seq_ids)]

    def is_finished(self) -> bool:
        """Whether nothing is queued or in flight and no result waits to be returned."""
        return self.scheduler.is_finished() and not (self._finished or self._launched or self._awaiting)

    # ---- one step -------------------------------------------------------------------------

    def step(self) -> list[Sequence]:
        """Run one step and return the sequences that finished in it.

        The overlapped loop returns when the step before is done and this one is in flight; with nothing left to
        schedule it waits for what is. If the runner fails or is interrupted, the step is undone: its rows go back to
        `waiting` and will be recomputed, so the engine stays usable. An interrupt of the wait for a step in flight
        undoes nothing: the next call waits again. What finished in a step whose end was interrupted is returned by
        the next call.
        """
        if self.config.overlap:
            self._step_overlapped()
        elif not self.scheduler.is_finished():
            self._step_plain()
        if self._recording:
            self._recording.tell()
        return self.take_finished()

    def take_finished(self) -> list[Sequence]:
        """The sequences that have finished since the last call: what `step` returns."""
        finished, self._finished = self._finished, []
        return finished

    def _step_plain(self) -> None:
        try:
            flight = self._launch()
            token_ids = flight.result()
            flight.lap("run", self._now())
            with uninterrupted():
                self.scheduler.postprocess(flight.plan, token_ids)
                flight.lap("postprocess", self._now())
                self._decided(flight)
                self._land(flight)
                self._launched = None
        except BaseException:
            with uninterrupted():
                self._undo_launched()
            raise

    def _step_overlapped(self) -> None:
        """Four stages, each complete or not begun: after an interrupt the next call goes on where this one stopped."""
        if not (self._launched or self._must_wait or self.scheduler.is_finished()):
            try:
                self._launch().lap("launch", self._now())
            except BaseException:
                with uninterrupted():
                    self._must_wait = self._awaiting is not None
                    self._undo_launched()
                raise
        self._wait_and_advance()
        if not self.sequences:  # all that is in flight is wasted: nobody will ask for it
            self._settle()

    def _launch(self) -> Flight:
        """Schedule a plan and hand it to the runner."""
        clock = self._now()
        with uninterrupted():
            index = self._recording.next_index if self._recording else 0
            self._launched = flight = Flight(self.scheduler.schedule(), clock, index, mark=clock)
        flight.lap("schedule", self._now())
        flight.pending = self._launcher.launch(flight.plan)
        return flight

    def _wait_and_advance(self) -> None:
        """Take in the tokens of the step before, then count on the one that was launched."""
        try:
            self._resolve_awaiting()
            self._advance_launched()
        except Exception:
            with uninterrupted():
                self._undo_all()
            raise

    def _resolve_awaiting(self) -> None:
        flight = self._awaiting
        if flight is None:
            return
        flight.mark = self._now()
        token_ids = flight.result()
        flight.lap("wait", self._now())
        with uninterrupted():
            self.scheduler.resolve(flight.plan, token_ids)
            flight.lap("postprocess", self._now())
            self._land(flight)
            self._awaiting, self._must_wait = None, False

    def _advance_launched(self) -> None:
        flight = self._launched
        if flight is None:
            return
        with uninterrupted():
            flight.mark = self._now()
            self.scheduler.advance(flight.plan)
            flight.lap("postprocess", self._now())
            self._decided(flight)
            self._launched, self._awaiting = None, flight

    def _settle(self) -> None:
        """Wait for all that is in flight and schedule nothing."""
        while self._launched or self._awaiting:
            self._wait_and_advance()

    def _decided(self, flight: Flight) -> None:
        if self._recording:
            self._recording.decided(flight)

    def _land(self, flight: Flight) -> None:
        rows = flight.plan.rows
        done = [row.seq_id for row in rows if row.seq.is_finished and row.seq_id in self.sequences]
        self._finished += [self.sequences.pop(seq_id) for seq_id in done]
        if self._recording:
            self._recording.landed(flight, flight.mark)

    # ---- undoing --------------------------------------------------------------------------

    def _undo_launched(self) -> None:
        flight, self._launched = self._launched, None
        if flight:
            self._undo(flight.plan)

    def _undo_all(self) -> None:
        """The tokens of a step never came: what was computed in it and since cannot be trusted."""
        awaited, self._awaiting, self._must_wait = self._awaiting, None, False
        self._undo_launched()
        if awaited is None:
            return
        self._undo(awaited.plan)
        manager = self.scheduler.block_manager
        for seq in self.scheduler.waiting:  # one between two chunks may hold blocks
            manager.deallocate(seq)
            seq.num_scheduled_tokens = seq.num_chunks = 0
        manager.reset_prefix_cache()
        if self._recording:
            self._recording.rewind()

    def _undo(self, plan: StepPlan) -> None:
        for row in reversed(plan.rows):
            seq = row.seq
            if seq.is_pending and not self._awaiting:  # else the step before will tell that token
                self._forget_pending(seq)
            if seq in self.scheduler.running:
                self.scheduler.running.remove(seq)
                self.scheduler.preempt(seq)
            elif row.chunk and seq in self.scheduler.waiting:  # a middle chunk: the ones before it still hold
                seq.num_scheduled_tokens = 0
                seq.num_chunks -= 1

    def _forget_pending(self, seq: Sequence) -> None:
        if seq.is_finished and seq.seq_id in self.sequences:
            self.scheduler.revive(seq)
        else:
            seq.drop_pending()

    # ---- recording ------------------------------------------------------------------------

    @property
    def trace(self) -> Trace | None:
        """The trace being recorded, if any."""
        return self._recording.trace if self._recording else None

    def settle(self) -> None:
        """Wait for the steps in flight, so that the newest step of the trace is the last one that was launched."""
        self._settle()
        if self._recording:
            self._recording.tell()

    def start_trace(self, versions: dict[str, str] | None = None, on_step: OnStep | None = None) -> Trace:
        """Begin a new trace at rest; it grows with each step. Raises RuntimeError if one is being recorded."""
        if self._recording:
            raise RuntimeError(
                "a trace is already being recorded, by start_trace() or by a live explorer: stop_trace(), or the "
                "explorer's close(), ends it"
            )
        self._settle()
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
        self._recording = Recording(header, self.scheduler, on_step)
        for seq in self.sequences.values():
            self._recording.request(seq, None)
        return self._recording.trace

    def stop_trace(self) -> Trace:
        """Wait for the steps in flight, end the recording and return the trace.

        Raises:
            RuntimeError: none is being recorded.
        """
        if self._recording is None:
            raise RuntimeError("no trace is being recorded; call start_trace() first")
        recording = self._recording
        try:
            self.settle()
        finally:
            self._recording = None
            recording.stop()
        return recording.trace

    def _now(self) -> float:
        return self._clock() - self._started_at


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


def can_overlap(scheduler_cls: type[Scheduler]) -> bool:
    """Whether the overlapped loop does with this class what the plain loop does.

    It calls `advance` and `resolve` in place of `postprocess`, so a class that changes the last must bring the others.
    """
    own_postprocess = getattr(scheduler_cls, "postprocess", None) is not Scheduler.postprocess
    own_halves = all(hasattr(scheduler_cls, name) for name in ("advance", "resolve")) and (
        getattr(scheduler_cls, "advance", None) is not Scheduler.advance
    )
    return own_halves or not own_postprocess


def _qualified_name(instance: object) -> str:
    return f"{type(instance).__module__}.{type(instance).__qualname__}"
