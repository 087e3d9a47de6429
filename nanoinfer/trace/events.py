"""What a mutation of the scheduler looks like once it is written down, and who ended when and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from nanoinfer.reasons import FinishReason

# Bump when a reader of the old format could misread the new one.
SCHEMA_VERSION = 2

KINDS = (
    "arrive",  # joined the end of waiting
    "admit",  # its block table is reserved; the blocks follow as reuse, share and allocate
    "run",  # moved from waiting to running
    "preempt",  # moved from running to the front of waiting
    "finish",
    "abort",
    "allocate",  # took a free block for new content
    "reuse",  # prefix hit on a block that lay in the free list
    "share",  # prefix hit on a block in use
    "release",  # gave up one hold on a block; the last hold frees it
    "register_hash",  # a full block became findable
    "evict_hash",  # a findable block was forgotten
)


class Event(NamedTuple):
    """One mutation, in the order it happened.

    Attributes:
        step: the step it belongs to; what happens between two steps belongs to the later one.
        kind: one of KINDS.
        seq_id: the sequence concerned, or None.
        block_id: the physical block concerned, or None.
        data: further numbers of this kind, or None.

    An overlapped step's end of a sequence by eos or a stop id is known, and stamped, while the next step is made.
    """

    step: int
    kind: str
    seq_id: int | None = None
    block_id: int | None = None
    data: dict[str, Any] | None = None


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
