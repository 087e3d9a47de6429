"""How much of the KV cache is held and filled after each step.

Blocks and token slots are different numbers: a block is held as soon as one slot in it may be
written, and its other slots stay empty until tokens arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Usage:
    """KV cache after one step: blocks held by sequences, and slots in them that hold a token's KV."""

    used_blocks: int
    filled_slots: int


def usage(trace: Trace) -> list[Usage]:
    """One entry per step, in one pass over the trace."""
    return _UsageFold(trace).run()


class _UsageFold:
    def __init__(self, trace: Trace) -> None:
        initial = trace.header.initial
        self.trace = trace
        self.size = trace.config.kvcache_block_size
        self.ref_counts = list(initial.ref_counts)
        # How far a half-filled block of a warm engine was filled is not recorded: its owner's next row tells.
        self.fill = [
            self.size if held and h != -1 else 0 for held, h in zip(initial.ref_counts, initial.hashes, strict=True)
        ]
        self.total = sum(self.fill)

    def run(self) -> list[Usage]:
        result = []
        events = iter(self.trace.events)
        event = next(events, None)
        for step in self.trace.steps:
            while event is not None and event.step == step.index:
                if event.block_id is not None:
                    self._apply(event.kind, event.block_id)
                event = next(events, None)
            self._fill_rows(step)
            result.append(Usage(sum(map(bool, self.ref_counts)), self.total))
        return result

    def _apply(self, kind: str, block: int) -> None:
        if kind in ("allocate", "reuse", "share"):
            self.ref_counts[block] += 1
            if kind == "reuse":
                self._set(block, self.size)
        elif kind == "release":
            self.ref_counts[block] -= 1
            if self.ref_counts[block] == 0:
                self._set(block, 0)

    def _fill_rows(self, step: Step) -> None:
        tables = self.trace.replay.at(step.index).block_tables
        c = step.columns
        for seq_id, computed, scheduled in zip(c.seq_id, c.num_computed, c.num_scheduled, strict=True):
            table, end = tables.get(seq_id), computed + scheduled
            if table:  # a sequence that finished in this step holds nothing after it
                for i in range(computed // self.size, -(-end // self.size)):
                    self._set(table[i], max(self.fill[table[i]], min(self.size, end - i * self.size)))

    def _set(self, block: int, fill: int) -> None:
        self.total += fill - self.fill[block]
        self.fill[block] = fill
