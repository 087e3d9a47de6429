"""One recorded step and its rows, as a reader of a trace sees them.

A step stores what the plan decided, in columns. Queues, the free list and block tables are not
stored: they are folded from the events when asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nanoinfer.reasons import Preemption, Stop

if TYPE_CHECKING:
    from nanoinfer.trace.trace import Trace


@dataclass(slots=True)
class RowColumns:
    """The rows of a step, one list per attribute (see `RecordedRow`)."""

    seq_id: list[int]
    num_computed: list[int]
    num_cached: list[int]
    num_scheduled: list[int]
    token_id: list[int | None]
    chunk: list[tuple[int, int] | None]

    @property
    def wasted(self) -> list[int]:
        """Sequence ids of the wasted rows (see `RecordedRow.wasted`)."""
        columns = zip(self.seq_id, self.token_id, self.chunk, strict=True)
        return [seq_id for seq_id, token_id, chunk in columns if token_id is None and chunk is None]


@dataclass(slots=True)
class RecordedRow:
    """One sequence's share of a step.

    Attributes:
        num_computed: tokens already in the KV cache before this step.
        num_cached: of those, found by the prefix cache.
        num_scheduled: tokens this step computed.
        token_id: the sampled token, or None where a middle chunk's sample was dropped or the row was wasted.
        chunk: 1-based (i, n) of a prefill, None on decode.
        block_table: physical blocks, with this step's reservations.
        slots: physical token slots this step wrote.
    """

    seq_id: int
    num_computed: int
    num_cached: int
    num_scheduled: int
    token_id: int | None
    chunk: tuple[int, int] | None
    block_table: list[int]
    block_size: int = field(repr=False)

    @property
    def wasted(self) -> bool:
        """Whether its sequence had ended already, which was not known when the step was launched."""
        return self.chunk is None and self.token_id is None

    @property
    def slots(self) -> list[int]:
        return slot_mapping(self.block_table, self.block_size, self.num_computed, self.num_scheduled)


def slot_mapping(block_table: list[int], block_size: int, start: int, count: int) -> list[int]:
    """Physical slots of token positions start .. start + count - 1."""
    return [block_table[p // block_size] * block_size + p % block_size for p in range(start, start + count)]


@dataclass(eq=False)
class Step:
    """One `schedule()` decision and what came of it.

    Attributes:
        index: position in `trace.steps`.
        clock: when `schedule()` was called, in units of `header.clock_unit`, since recording began.
        phase: "prefill", "decode" or "mixed".
        columns: the rows, column by column.
        preempted: the victims in order.
        stop: why admission ended, with the numbers compared.
        decode_stop: why the decode loop ended.
        timing: clock units spent in "schedule", "run" and "postprocess", and "duration", from `clock` until the tokens
            were known. An overlapped step has "launch" and "wait" in place of "run", and its duration covers the time
            in which the step before it was still computed. A GPU adds "launch" and "gpu".
        graph_size: batch size of the CUDA graph that was replayed, padding included; None if none was.
    """

    index: int
    clock: float
    phase: str
    columns: RowColumns
    preempted: list[Preemption]
    stop: Stop
    decode_stop: Stop
    timing: dict[str, float]
    trace: Trace = field(repr=False)
    graph_size: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and self._values() == other._values()

    def _values(self) -> tuple[Any, ...]:
        return (self.index, self.clock, self.timing, self.graph_size, *self.decision)

    @property
    def decision(self) -> tuple[Any, ...]:
        """Everything but times: equal in two runs that decided the same."""
        return (self.phase, self.columns, self.preempted, self.stop, self.decode_stop)

    @property
    def num_batched_tokens(self) -> int:
        return sum(self.columns.num_scheduled)

    @property
    def rows(self) -> list[RecordedRow]:
        """The rows, with their block tables, for which the trace is folded to this step. `columns` needs no fold."""
        fold, size = self.trace.replay.at(self.index), self.trace.config.kvcache_block_size
        tables = {**fold.block_tables, **fold.last_tables}
        c = self.columns
        columns = zip(c.seq_id, c.num_computed, c.num_cached, c.num_scheduled, c.token_id, c.chunk, strict=True)
        return [
            RecordedRow(seq_id, computed, cached, scheduled, token_id, chunk, list(tables[seq_id]), size)
            for seq_id, computed, cached, scheduled, token_id, chunk in columns
        ]

    @property
    def waiting(self) -> list[int]:
        """Sequence ids in queue order after `postprocess`."""
        return list(self.trace.replay.at(self.index).waiting)

    @property
    def running(self) -> list[int]:
        """Sequence ids in queue order after `postprocess`."""
        return list(self.trace.replay.at(self.index).running)

    @property
    def free_blocks(self) -> list[int]:
        """The ordered free list after `postprocess`."""
        return list(self.trace.replay.at(self.index).free_blocks)


def columns_of(rows: Sequence[Any]) -> RowColumns:
    """The columns of a plan's rows."""
    return RowColumns(
        [row.seq_id for row in rows],
        [row.num_computed for row in rows],
        [row.num_cached for row in rows],
        [row.num_scheduled for row in rows],
        [row.token_id for row in rows],
        [row.chunk for row in rows],
    )
