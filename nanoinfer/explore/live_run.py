"""A run of the live explorer: what it stops at, and its steps, in turns with the kernel's other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nanoinfer.explore.live_engine import interruptible
from nanoinfer.explore.live_turns import Turns
from nanoinfer.sampling_params import as_int
from nanoinfer.trace.events import endings
from nanoinfer.trace.state import events_of_step
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace
from nanoinfer.trace.words import sequences, verb

Goal = Callable[[Step], str | None]  # after a step: why the run ends with it, or None

NAMES = ("finish", "preemption")


class Run:
    """Steps an engine by itself, one step in each turn of the event loop; `going` while it does.

    `advance` makes a step and returns what was recorded meanwhile, or None if there was nothing to do. `ended` is told
    why a run ended, and whether by an error.
    """

    def __init__(
        self, turns: Turns, advance: Callable[[], list[Step] | None], ended: Callable[[str | None, bool], None]
    ) -> None:
        self.going = False
        self._turns, self._advance, self._ended = turns, advance, ended
        self._task: asyncio.Task[None] | None = None

    def start(self, goal: Goal) -> None:
        """Begin. Raises RuntimeError outside an event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError("run() needs an event loop, as a notebook has; elsewhere call step()") from None
        self.going = True
        self._turns.run_in(loop)
        self._task = loop.create_task(self._drive(goal))

    def stop(self) -> None:
        """End it after the step in flight. Its end is not told then."""
        self.going = False

    async def wait(self) -> None:
        """Until it has ended."""
        if self._task and not self._task.done():
            await asyncio.wait([self._task])

    async def _drive(self, goal: Goal) -> None:
        note, failed = None, False
        mine = asyncio.current_task()  # a later run takes the place of one that was stopped
        try:
            while self.going and self._task is mine:
                note = self._turn(goal)
                if note is not None:
                    break
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            note = "Stopped: the kernel's event loop ended."
            raise
        except BaseException as error:
            note, failed = error_in_words(error), True
        finally:
            if self._task is mine:
                self._turns.run_in(None)
                if self.going or note:
                    self.going = False
                    self._ended(note, failed)

    def _turn(self, goal: Goal) -> str | None:
        """One step; why the run ends with it, if it does."""
        with interruptible(), self._turns.lock:
            steps = self._advance()
            if steps is None:
                return "Idle: every request has finished."
            return next(filter(None, map(goal, steps)), None)


def error_in_words(error: BaseException) -> str:
    """An error as the view tells it."""
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted. The engine has undone the step in flight and can go on."
    text = str(error) or "no message"
    return text if isinstance(error, (ValueError, RuntimeError)) else f"{type(error).__name__}: {text}"


def goal_of(until: str | int | None, trace: Trace) -> Goal:
    """The goal called `until`; None is never reached. Raises ValueError for an unknown goal or a step that has run."""
    if until is None:
        return lambda _step: None
    if until == "finish":
        return lambda step: _finished(trace, step)
    if until == "preemption":
        return _preempted
    if isinstance(until, str):
        raise ValueError(f"until must be one of {', '.join(map(repr, NAMES))} or a step number, got {until!r}")
    number = as_int("step", until)
    if number < len(trace.steps):
        raise ValueError(f"step {number} has already run; the next one is step {len(trace.steps)}")
    return lambda step: f"Stopped at step {number}." if step.index >= number else None


def _finished(trace: Trace, step: Step) -> str | None:
    ended = endings(events_of_step(trace.events, step.index))
    ids = sorted(ending.seq_id for ending in ended if not ending.aborted and not ending.corrects)
    return f"Stopped at step {step.index}: {sequences(ids)} finished." if ids else None


def _preempted(step: Step) -> str | None:
    victims = [record.victim for record in step.preempted]
    were = verb(victims, "was", "were")
    return f"Stopped at step {step.index}: {sequences(victims)} {were} preempted." if victims else None
