"""What each frame changed in the queues, the block tables and the prefix cache.

One fold over the events keeps only differences: applied in order, they give the state after every frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized

from nanoinfer.explore.columns import Columns
from nanoinfer.explore.frames import Frames
from nanoinfer.trace.events import Event, endings
from nanoinfer.trace.state import NO_HASH, Fold, Unread
from nanoinfer.trace.trace import Trace

QUEUE_KINDS = frozenset({"arrive", "run", "preempt", "finish", "abort"})
TABLE_KINDS = frozenset({"allocate", "reuse", "share", "release"})
CHANGING_KINDS = TABLE_KINDS | {"evict_hash"}  # a block that changed hands or lost its content
REMOVED = -1


class Changes:
    """Folds a growing trace frame by frame."""

    def __init__(self, trace: Trace) -> None:
        self.fold = Fold(trace.header.initial)
        self.queues = [list(self.fold.waiting), list(self.fold.running)]
        self.tables = {seq_id: list(table) for seq_id, table in self.fold.block_tables.items()}
        self.findable = set(self.fold.hash_index.values())
        self.unread = Unread(trace)

    def put(self, columns: Columns, frames: Frames, start: int, end: int) -> None:
        """Put the columns of frames `start` to `end - 1`; call it with adjoining ranges."""
        out = _Deltas()
        for frame in range(start, end):
            self._apply(self.unread.up_to(frames.end_step(frame) - 1), out)
            out.end_frame(self.fold.num_used_blocks)
        out.put(columns)

    def _apply(self, events: list[Event], out: _Deltas) -> None:
        """Fold `events` and note how the state differs afterwards."""
        self.fold.last_tables.clear()
        registered: set[int] = set()  # blocks whose place in the prefix cache may have changed
        for event in events:
            if event.kind in ("register_hash", "evict_hash") and event.block_id is not None and event.data:
                registered |= {event.block_id, self.fold.hash_index.get(event.data["hash"], event.block_id)}
            self.fold.apply(event)
        if any(event.kind in QUEUE_KINDS for event in events):
            self._note_queues(out)
        self._note_tables({e.seq_id for e in events if e.kind in TABLE_KINDS and e.seq_id is not None}, out)
        self._note_findable(registered, out)
        out.changed += sorted({e.block_id for e in events if e.kind in CHANGING_KINDS and e.block_id is not None})
        out.arrived += [e.seq_id for e in events if e.kind == "arrive" and e.seq_id is not None]
        out.ended += [(ending.seq_id, ending.reason) for ending in endings(events)]

    def _note_queues(self, out: _Deltas) -> None:
        for which, queue in enumerate((self.fold.waiting, self.fold.running)):
            after = list(queue)
            out.queues += [(which, position, seq_id) for position, seq_id in list_edits(self.queues[which], after)]
            self.queues[which] = after

    def _note_tables(self, touched: Iterable[int], out: _Deltas) -> None:
        for seq_id in sorted(touched):
            before, after = self.tables.get(seq_id, []), list(self.fold.block_tables.get(seq_id, []))
            keep = common_prefix(before, after)
            if keep < max(len(before), len(after)):
                out.tables.append((seq_id, keep, len(after) - keep))
                out.table_blocks += after[keep:]
            self.tables[seq_id] = after

    def _note_findable(self, touched: Iterable[int], out: _Deltas) -> None:
        for block in sorted(touched):
            block_hash = self.fold.hashes[block]
            now = block_hash != NO_HASH and self.fold.hash_index.get(block_hash) == block
            if now != (block in self.findable):
                out.findable.append(block if now else ~block)
                (self.findable.add if now else self.findable.remove)(block)


class _Deltas:
    """The growing columns, with the length of every ragged one at the end of each frame."""

    def __init__(self) -> None:
        self.queues: list[tuple[int, int, int]] = []  # 0 waiting or 1 running, position or REMOVED, sequence
        self.tables: list[tuple[int, int, int]] = []  # sequence, blocks kept, blocks appended
        self.table_blocks: list[int] = []
        self.findable: list[int] = []  # a block that can be found now, or ~block if no longer
        self.changed: list[int] = []
        self.arrived: list[int] = []
        self.ended: list[tuple[int, str]] = []
        self.used: list[int] = []
        self._ends: list[tuple[int, ...]] = []

    def end_frame(self, used: int) -> None:
        self.used.append(used)
        ragged: tuple[Sized, ...] = (self.queues, self.tables, self.findable, self.changed, self.arrived, self.ended)
        self._ends.append(tuple(map(len, ragged)))

    def put(self, columns: Columns) -> None:
        columns.numbers("used", self.used)
        names = ("queue", "table", "findable", "changed", "arrived", "ended")
        for name, ends in zip(names, zip(*self._ends, strict=True) if self._ends else [()] * 6, strict=True):
            columns.numbers(f"{name}_count", counts(ends))
        put_tuples(columns, ("queue_which", "queue_position", "queue_seq"), self.queues)
        put_tuples(columns, ("table_seq", "table_keep", "table_more"), self.tables)
        columns.numbers("table_block", self.table_blocks)
        columns.numbers("findable_block", self.findable)
        columns.numbers("changed_block", self.changed)
        columns.numbers("arrived_seq", self.arrived)
        columns.numbers("ended_seq", [seq_id for seq_id, _ in self.ended])
        columns.json("ended_reason", [reason for _, reason in self.ended])


def put_tuples(columns: Columns, names: Sequence[str], rows: Sequence[tuple[int, ...]]) -> None:
    """Put `rows` as one column per name."""
    for name, values in zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True):
        columns.numbers(name, values)


def counts(ends: Sequence[int]) -> list[int]:
    """Lengths from running ends."""
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def list_edits(before: list[int], after: list[int]) -> list[tuple[int, int]]:
    """Edits that turn `before` into `after`: first (REMOVED, item), then (position, item) from left to right."""
    if before == after:
        return []
    staying = set(before) & set(after)
    if [item for item in before if item in staying] != [item for item in after if item in staying]:
        staying = set()  # somebody was moved past somebody else: write the list anew
    removed = [(REMOVED, item) for item in before if item not in staying]
    return removed + [(position, item) for position, item in enumerate(after) if item not in staying]


def common_prefix(a: list[int], b: list[int]) -> int:
    """How many items two lists have in common from the start."""
    for n, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return n
    return min(len(a), len(b))
