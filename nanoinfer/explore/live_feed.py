"""From a growing trace to the view: packs the new steps and sends them, some twenty times a second at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from nanoinfer.explore.pack import Packer
from nanoinfer.trace.trace import Trace

SEND_EVERY = 0.05  # seconds between two updates of the view while running


class Feed:
    """Sends one growing trace by `send`; `after` is called after an update that came on a timer or on a step."""

    def __init__(self, trace: Trace, send: Callable[[dict[str, Any]], None], after: Callable[[], None]) -> None:
        self._trace, self._send, self._after = trace, send, after
        self._packer: Packer | None = Packer(trace)
        self._sent = 0  # steps that the packer has packed
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def stepped(self, _trace: Trace, _i: int) -> None:
        """The engine has stepped, by a button or by somebody's code."""
        wait = self._sent_at + SEND_EVERY - time.monotonic()
        if wait <= 0:
            self._update()
        elif self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(wait, self._update)
            except RuntimeError:  # no event loop: a script
                self._update()

    def _update(self) -> None:
        self.flush()
        self._after()

    def flush(self) -> None:
        """Send the steps that came since the last time."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._sent_at = time.monotonic()
        if self._packer is None:  # an interrupt caught the last one half way
            self.send_all()
            return
        packer, self._packer = self._packer, None
        if self._sent < len(self._trace.steps):
            chunk = packer.chunk()
            self._sent = chunk["steps"]
            self._send({"type": "chunk", "chunk": chunk})
        self._packer = packer

    def send_all(self) -> None:
        """Send the whole trace in place of what the view has."""
        self._send({"type": "trace", "payload": self.payload()})

    def payload(self) -> dict[str, Any]:
        """The trace so far as one chunk; what comes next continues it."""
        packer = Packer(self._trace)
        payload = packer.header()
        if self._trace.steps:
            payload["chunks"].append(packer.chunk())
        self._packer, self._sent = packer, len(self._trace.steps)
        return payload
