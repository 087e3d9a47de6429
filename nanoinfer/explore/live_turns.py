"""One thread at a time at the engine.

A notebook may deliver a button's message on another thread than the one whose event loop runs the engine (JupyterLab
4.4 and later do, while the kernel is busy). What it asks for is then done by the thread that runs, between two steps.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class Turns:
    """Which thread may touch the engine now. It holds `lock` while it does."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def run_in(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """From here on the running loop of this thread runs the engine; None when the run has ended."""
        self._loop, self._thread = loop, threading.get_ident()

    def call(self, action: Callable[[], Result]) -> Result:
        """Do it here, or where the engine runs; returns or raises what it does."""
        loop = self._loop
        if loop is None or loop.is_closed() or self._thread == threading.get_ident():
            with self.lock:
                return action()
        done: Future[Result] = Future()

        def act() -> None:
            try:
                with self.lock:
                    done.set_result(action())
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon_threadsafe(act)
        return done.result()


class HasTurns(Protocol):
    """What `in_turn` needs of its method's object."""

    _turns: Turns


Owner = TypeVar("Owner", bound=HasTurns)


def in_turn(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """A method that may be called on any thread."""

    @wraps(method)
    def call(self: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self._turns.call(lambda: method(self, *args, **kwargs))

    return call
