"""What `schedule()` returns: the rows to run, who was preempted, and why the loops ended.

A plan is a decision, complete without any recorder: tests and students assert on it directly.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Literal

from nanoinfer.core.sequence import Sequence
from nanoinfer.reasons import Preemption, Stop
from nanoinfer.trace.steps import slot_mapping

Phase = Literal["prefill", "decode", "mixed"]


class Row:
    """One sequence's share of a step.

    Attributes:
        seq: the sequence itself, for the runner.
        num_computed: tokens already in the KV cache before this step.
        num_cached: of those, found by the prefix cache.
        num_scheduled: tokens this step computes.
        chunk: 1-based (i, n) of a prefill; n assumes that later chunks get the whole budget. None on decode.
        token_id: the sampled token once it is known; None until then, for the dropped sample of a middle chunk, and
            where the sequence has ended meanwhile.
    """

    __slots__ = ("_num_blocks", "_table", "chunk", "num_cached", "num_computed", "num_scheduled", "seq", "token_id")

    def __init__(self, seq: Sequence, chunk: tuple[int, int] | None = None) -> None:
        self.seq = seq
        self.chunk = chunk
        self.num_computed = seq.num_computed_tokens
        self.num_cached = seq.num_cached_tokens
        self.num_scheduled = seq.num_scheduled_tokens
        self.token_id: int | None = None
        # A table only grows while it is held and is replaced, not cleared, when given up:
        # the list and its length now are a snapshot that costs nothing to take.
        self._table = seq.block_table
        self._num_blocks = len(seq.block_table)

    @property
    def seq_id(self) -> int:
        return self.seq.seq_id

    @property
    def block_table(self) -> list[int]:
        """Physical blocks of the sequence, with this step's reservations."""
        return self._table[: self._num_blocks]

    @property
    def slots(self) -> list[int]:
        """Physical token slots this step writes, one per scheduled token."""
        return slot_mapping(self._table, self.seq.block_size, self.num_computed, self.num_scheduled)

    def __repr__(self) -> str:
        return f"Row(seq {self.seq_id}: {self.num_computed}+{self.num_scheduled}@{self.block_table})"


@dataclass(slots=True)
class StepPlan:
    """The decision of one `schedule()` call.

    `stop` says why admission ended, `decode_stop` why decoding did; `preempted` lists the victims in order.
    """

    phase: Phase
    rows: list[Row]
    stop: Stop
    decode_stop: Stop
    preempted: list[Preemption] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.stop}; {self.decode_stop}"

    @property
    def num_batched_tokens(self) -> int:
        return sum(row.num_scheduled for row in self.rows)

    def check_tokens(self, token_ids: Tokens[int]) -> None:
        """Raises ValueError unless there is one token for each row."""
        if len(token_ids) != len(self.rows):
            raise ValueError(f"a plan needs one token per row: {len(self.rows)} rows, {len(token_ids)} token_ids")


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a runner gives back for a plan.

    Attributes:
        token_ids: one sampled id per row.
        timing: clock units by name, e.g. "gpu".
        graph_size: batch size of the CUDA graph that was replayed, padding included; None if none was.
    """

    token_ids: Tokens[int]
    timing: dict[str, float] = field(default_factory=dict)
    graph_size: int | None = None
