"""What a mutation of the scheduler looks like once it is written down."""

from __future__ import annotations

from typing import Any, NamedTuple

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
