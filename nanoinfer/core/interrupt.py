"""Ctrl-C between decisions, never inside one.

A KeyboardInterrupt in the middle of a queue move would leave blocks without an owner.
`uninterrupted` holds the signal back for the microseconds such a move takes and delivers it after.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay SIGINT until the block ends. Signals reach the main thread only; elsewhere this does nothing, and neither
    where the handler is not Python's to put back: while the interpreter ends, or in a program that embeds it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    held: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if held:
            signal.raise_signal(held[0])
