"""Who ended when, and why: the one reading of `finish` and `abort` events.

The overlapped loop chooses a step before the tokens of the step before are known, so an ending and the
token that it follows may belong to different steps. `docs/why.md` explains the overlapped loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nanoinfer.reasons import FinishReason
from nanoinfer.trace.events import Event


class Ending(NamedTuple):
    """A sequence left the engine, or the reason why it had left was corrected.

    Attributes:
        step: the step in which it is recorded; the last token may belong to an earlier one.
        reason: a FinishReason.
        corrects: it left earlier, for its length, and its last token proved to be one that ends it.
    """

    seq_id: int
    step: int
    reason: str
    corrects: bool

    @property
    def aborted(self) -> bool:
        return self.reason == FinishReason.ABORT

    @property
    def by_length(self) -> bool:
        """Whether it may have been recorded before its last token was known: a length needs no token."""
        return self.reason == FinishReason.LENGTH


def endings(events: Iterable[Event]) -> Iterator[Ending]:
    """Those among `events`, in order."""
    for event in events:
        if event.kind in ("finish", "abort") and event.seq_id is not None:
            data = event.data or {}
            reason = data.get("reason", FinishReason.ABORT)
            yield Ending(event.seq_id, event.step, reason, data.get("late") == "ended")
