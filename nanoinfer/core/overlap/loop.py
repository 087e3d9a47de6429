"""The step loop that schedules ahead: while the device computes step n, step n+1 is scheduled and launched behind it.

plain       | schedule n | device n | take in n | schedule n+1 | device n+1 | ...

overlapped  | schedule n+1, launch | wait for n | take in n | schedule n+2, launch | ...
the device  |----------- n -----------|--------------- n+1 --------------|---- ...
"""

from __future__ import annotations

from collections.abc import Iterable

from nanoinfer.core.engine_core import EngineCore
from nanoinfer.core.interrupt import uninterrupted
from nanoinfer.core.overlap.in_flight import InFlightBatch, LaunchingRunner
from nanoinfer.core.overlap.scheduler import Overlapped, overlapped
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.core.trace_builder import StepTimes


class OverlappedCore(EngineCore):
    """An `EngineCore` whose `step` returns when the step before is done and this one is in flight.

    With nothing left to schedule it waits for what is in flight. An interrupt of that wait undoes nothing: the next
    call waits again.

    Raises:
        TypeError: the scheduler class cannot overlap.
    """

    scheduler: Overlapped
    runner: LaunchingRunner

    _launched: InFlightBatch | None = None  # launched, not advanced
    _awaiting: InFlightBatch | None = None  # advanced, its tokens not known yet
    _must_wait = False  # a launch failed: nothing is scheduled before `_awaiting` is resolved

    def _fitted(self, cls: type[Scheduler]) -> type[Scheduler]:
        return overlapped(cls)

    def is_finished(self) -> bool:
        return super().is_finished() and not (self._launched or self._awaiting)

    def drop(self, seq_ids: Iterable[int]) -> None:
        """As `EngineCore.drop`; if no request is left, what is in flight is waited for."""
        with uninterrupted():
            super().drop(seq_ids)
            if not self.sequences:
                self._land_all()

    def settle(self) -> None:
        """Wait for the steps in flight, so that the newest step of the trace is the last one that was launched."""
        self._land_all()
        super().settle()

    def _step(self) -> None:
        """Four stages, each complete or not begun: after an interrupt the next call goes on where this one stopped."""
        if not (self._launched or self._must_wait or self.scheduler.is_finished()):
            self._launch()
        self._wait_and_advance()
        if not self.sequences:  # all that is in flight is wasted: no request will ask for it
            self._land_all()

    def _launch(self) -> None:
        """Schedule a plan and hand it to the device. If that fails, only this plan is undone."""
        try:
            with uninterrupted():
                times = StepTimes(self._now(), self.next_index)
                self._launched = flight = InFlightBatch(self.scheduler.schedule(), times)
            if not flight.plan.rows:  # all that is left waits for its last token
                self._launched = None
                return
            times.lap("schedule", self._now())
            flight.launch = self.runner.launch(flight.plan)
            times.lap("launch", self._now())
        except BaseException:
            with uninterrupted():
                self._must_wait = self._awaiting is not None
                flight_or_none, self._launched = self._launched, None
                if flight_or_none:
                    self.scheduler.undo(flight_or_none.plan)
            raise

    def _wait_and_advance(self) -> None:
        """Take in the tokens of the step before, then count on the one that was launched."""
        try:
            self._resolve_awaiting()
            self._advance_launched()
        except Exception:  # an interrupt loses nothing: the next call waits again
            with uninterrupted():
                self._lose_all()
            raise

    def _resolve_awaiting(self) -> None:
        flight = self._awaiting
        if flight is None:
            return
        flight.times.mark = self._now()
        result = flight.result()
        flight.times.lap("wait", self._now())
        with uninterrupted():
            self.scheduler.resolve(flight.plan, result.token_ids)
            flight.times.lap("postprocess", self._now())
            self._finish_step(flight.plan, result, flight.times)
            self._awaiting, self._must_wait = None, False

    def _advance_launched(self) -> None:
        flight = self._launched
        if flight is None:
            return
        with uninterrupted():
            flight.times.mark = self._now()
            self.scheduler.advance(flight.plan)
            flight.times.lap("postprocess", self._now())
            self._begin_next(flight.times)
            self._launched, self._awaiting = None, flight

    def _land_all(self) -> None:
        """Wait for all that is in flight and schedule nothing."""
        while self._launched or self._awaiting:
            self._wait_and_advance()

    def _lose_all(self) -> None:
        lost = [flight.plan for flight in (self._launched, self._awaiting) if flight]
        self._launched, self._awaiting, self._must_wait = None, None, False
        self.scheduler.lose(lost, wanted=self.sequences)
        if self._builder:
            self._builder.rewind()
