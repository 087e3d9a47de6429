"""The why-catalogue: every reason the engine can give, by name.

A leaf module: it imports nothing of the project, so the scheduler, the trace and the
pictures can all speak the same words. `docs/why.md` explains each reason with an example.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class StopReason(StrEnum):
    """Why a scheduling loop ended. The comment names the operands that come with it."""

    QUEUE_EMPTY = "QUEUE_EMPTY"  # nobody waits
    MAX_SEQS = "MAX_SEQS"  # scheduled, limit
    TOKEN_BUDGET = "TOKEN_BUDGET"  # batched, limit
    NO_BLOCKS = "NO_BLOCKS"  # needed, free
    CHUNK_NOT_ALLOWED = "CHUNK_NOT_ALLOWED"  # needed, remaining
    PREEMPTED_THIS_STEP = "PREEMPTED_THIS_STEP"  # victims
    RUNNING_EMPTY = "RUNNING_EMPTY"  # every running sequence was looked at
    PHASE_EXCLUSIVE = "PHASE_EXCLUSIVE"  # a prefill batch was chosen, so nobody decodes


class FinishReason(StrEnum):
    """Why a request ended, tested in this order (an abort comes from outside)."""

    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class RefusalReason(StrEnum):
    """Why a request was turned away at submission."""

    TOO_LONG = "TOO_LONG"
    NEVER_FITS = "NEVER_FITS"


class MissReason(StrEnum):
    """Why a prefix lookup matched no further block."""

    NEVER_CACHED = "NEVER_CACHED"
    EVICTED = "EVICTED"
    LAST_BLOCK = "LAST_BLOCK"  # the block of the last prompt token is always computed


@dataclass(frozen=True, slots=True)
class Stop:
    """A reason with the numbers that were compared: `NO_BLOCKS needed=3 free=2`."""

    reason: str
    operands: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.reason, *(f"{name}={value}" for name, value in self.operands.items())])


@dataclass(frozen=True, slots=True)
class Preemption:
    """One victim: whose need cost it its blocks, by which rule, and what that costs.

    `blocks` counts the blocks that went back to the free list (shared ones stay with the others);
    `tokens` counts the computed tokens whose KV the victim lost.
    """

    victim: int
    on_behalf_of: int
    rule: Literal["tail", "self"]
    blocks: int
    tokens: int


class RefusedError(ValueError):
    """A request that can never be served. `reason` is a RefusalReason, `operands` its numbers."""

    def __init__(self, reason: RefusalReason, operands: dict[str, int], message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.operands = operands
