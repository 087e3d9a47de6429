"""The why-catalogue: every reason the engine can give, by name, and all there is to say of it.

A leaf module: it imports nothing of the project, so the scheduler, the trace and the pictures can all
speak the same words. `docs/why.md` explains each reason with an example. Adding a reason to the
package is one member of `StopReason`; a policy of your own declares one with `declare`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from string import Formatter
from typing import Literal, NewType, Self

ReasonName = NewType("ReasonName", str)  # of a declared reason, or of one read from a trace file


class Waits(StrEnum):
    """Sequences that a stop keeps waiting."""

    HEAD = "head"  # the head of `waiting`
    BEHIND = "behind"  # those behind the head, although they might have fitted
    LEFT_OUT = "left out"  # sequences in `running` that got no row


@dataclass(frozen=True, slots=True)
class Reason:
    """What there is to say of one stop reason.

    Attributes:
        name: in capitals, as in `NO_BLOCKS`.
        operands: names of the numbers that were compared.
        sentence: a template of what `Trace.explain` says. `{name}` stands for an operand, `{name:block}` for a count of
            blocks ("1 block", "3 blocks"), `{name:is}` for "1 is" or "3 are", and `{who}` for the head of `waiting`, or
            for the sequences that the decode loop left out. None: the stop is shown as it was recorded.
        waits: which sequences wait because of it.
        refuses: whether admission turned away the head of `waiting`.
        after_preemptions: whether the step's preemptions led to it, so that they are told first.
    """

    name: str
    operands: tuple[str, ...] = ()
    sentence: str | None = None
    waits: tuple[Waits, ...] = ()
    refuses: bool = False
    after_preemptions: bool = False

    def __post_init__(self) -> None:
        named = {name for _, name, _, _ in Formatter().parse(self.sentence or "") if name is not None}
        if unknown := named - {*self.operands, "who"}:
            raise ValueError(f"the sentence of {self.name} names {unknown}; its operands are {self.operands}")


class StopReason(StrEnum):
    """Why a scheduling loop ended; `record` says all about it. Admission tests its reasons in this order."""

    record: Reason

    def __new__(cls, record: Reason) -> Self:
        member = str.__new__(cls, record.name)
        member._value_, member.record = record.name, record
        return member

    QUEUE_EMPTY = Reason("QUEUE_EMPTY", sentence="Nobody else was waiting.")
    MAX_SEQS = Reason(
        "MAX_SEQS",
        ("scheduled", "limit"),
        "The batch was full at {limit:sequence} (max_num_seqs), so {who} must wait for the next step.",
        (Waits.HEAD, Waits.LEFT_OUT),
        refuses=True,
    )
    TOKEN_BUDGET = Reason(
        "TOKEN_BUDGET",
        ("batched", "limit"),
        "The token budget was used up ({batched} of {limit}), so {who} must wait for the next step.",
        (Waits.HEAD, Waits.LEFT_OUT),
        refuses=True,
    )
    NO_BLOCKS = Reason(
        "NO_BLOCKS",
        ("needed", "free"),
        "Admission stopped at {who}: it needs {needed:free block} and {free:is} free.",
        (Waits.HEAD, Waits.BEHIND),
        refuses=True,
    )
    CHUNK_NOT_ALLOWED = Reason(
        "CHUNK_NOT_ALLOWED",
        ("needed", "remaining"),
        "Admission stopped at {who}: it needs {needed:token} and {remaining} were left in the budget, "
        "and only the first sequence of a batch may be cut into chunks.",
        (Waits.HEAD, Waits.BEHIND),
        refuses=True,
    )
    PREEMPTED_THIS_STEP = Reason(
        "PREEMPTED_THIS_STEP", ("victims",), "A step that preempted a sequence admits none.", after_preemptions=True
    )
    RUNNING_EMPTY = Reason("RUNNING_EMPTY", sentence="")  # the ordinary case: every running sequence had a turn
    PHASE_EXCLUSIVE = Reason(
        "PHASE_EXCLUSIVE", (), "A prefill batch was chosen, so {who} did not decode.", (Waits.LEFT_OUT,)
    )


REASONS = {str(reason): reason.record for reason in StopReason}


def declare(reason: Reason) -> ReasonName:
    """Add a policy's own reason to `REASONS` and return the name to make stops with. Declaring it anew replaces it.

    Raises:
        ValueError: the name is one of nanoinfer's own.
    """
    if reason.name in StopReason.__members__:
        raise ValueError(f"{reason.name} is one of nanoinfer's own reasons; choose another name")
    REASONS[reason.name] = reason
    return ReasonName(reason.name)


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

    reason: StopReason | ReasonName
    operands: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.reason, *(f"{name}={value}" for name, value in self.operands.items())])

    @property
    def refuses(self) -> bool:
        """Whether the head of `waiting` was turned away. A reason that is not declared is not counted as a refusal."""
        return self.reason in REASONS and REASONS[self.reason].refuses


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
