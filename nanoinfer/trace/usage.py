"""How full the queues and the KV cache are after each step.

Blocks and token slots are different numbers: a block is held as soon as one slot in it may be
written, and its other slots stay empty until tokens arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

from nanoinfer.trace.events import Event
from nanoinfer.trace.state import NO_HASH, Fold, events_of_step
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Usage:
    """After one step: queue lengths, blocks held by sequences and free, and slots that hold a token's KV."""

    num_waiting: int
    num_running: int
    used_blocks: int
    free_blocks: int
    filled_slots: int


def usage(trace: Trace) -> list[Usage]:
    """One entry per step, in one pass over the trace."""
    slots, result = _FilledSlots(trace), []
    for step in trace.steps:
        fold = trace.replay.at(step.index)
        slots.update(events_of_step(trace.events, step.index), step, fold)
        lengths = len(fold.waiting), len(fold.running), fold.num_used_blocks, len(fold.free_blocks)
        result.append(Usage(*lengths, slots.total))
    return result


class _FilledSlots:
    """How many slots of each block hold a token's KV. The fold knows the blocks, the rows know the tokens."""

    def __init__(self, trace: Trace) -> None:
        initial = trace.header.initial
        self.size = trace.config.kvcache_block_size
        # How far a half-filled block of a warm engine was filled is not recorded: its owner's next row tells.
        held = zip(initial.ref_counts, initial.hashes, strict=True)
        self.fill = [self.size if count and block_hash != NO_HASH else 0 for count, block_hash in held]
        self.total = sum(self.fill)

    def update(self, events: list[Event], step: Step, fold: Fold) -> None:
        """Take in a step: its events, its rows, and the state after it."""
        for _, kind, _, block, _ in events:
            if block is None:
                continue
            if kind == "reuse":
                self._set(block, self.size)
            elif kind == "allocate" or (kind == "release" and not fold.ref_counts[block]):
                self._set(block, 0)
        c, tables, size, fill = step.columns, fold.block_tables, self.size, self.fill
        for seq_id, computed, scheduled in zip(c.seq_id, c.num_computed, c.num_scheduled, strict=True):
            table, end = tables.get(seq_id), computed + scheduled
            if table:  # a sequence that finished in this step holds nothing after it
                for i in range(computed // size, -(-end // size)):
                    filled = min(size, end - i * size)
                    if filled > fill[table[i]]:
                        self._set(table[i], filled)

    def _set(self, block: int, fill: int) -> None:
        self.total += fill - self.fill[block]
        self.fill[block] = fill
