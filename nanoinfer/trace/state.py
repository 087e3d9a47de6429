"""The scheduler's state as plain data, and the fold that rebuilds it from events.

A trace is complete when folding its events gives the queues, block tables, reference counts, hashes
and free list of the live scheduler after every step. The fold is strict: an event that cannot have
happened in the state before it raises `ValueError`, so a missing event does not go unnoticed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from nanoinfer.trace.events import KINDS, Event

if TYPE_CHECKING:
    from nanoinfer.trace.trace import Trace

NO_HASH = -1
CHECKPOINT_EVERY = 256  # steps between kept copies: seeking back folds at most this many steps


@dataclass
class SchedulerState:
    """Queues and blocks at one moment.

    Attributes:
        waiting, running: sequence ids in queue order.
        block_tables: physical blocks of every sequence that holds any.
        ref_counts, hashes: per physical block; hash -1 means not registered.
        hash_index: block found under each hash.
        free_blocks: the free list in order, next to be taken first.
    """

    waiting: list[int]
    running: list[int]
    block_tables: dict[int, list[int]]
    ref_counts: list[int]
    hashes: list[int]
    hash_index: dict[int, int]
    free_blocks: list[int]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: mappings as lists of pairs, since JSON keys are strings."""
        return {name: list(v.items()) if isinstance(v, dict) else v for name, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SchedulerState:
        return cls(**data | {name: dict(map(tuple, data[name])) for name in ("block_tables", "hash_index")})


def snapshot(scheduler: Any) -> SchedulerState:
    """The state of a live scheduler, read from its queues and its block manager."""
    manager = scheduler.block_manager
    queued = [*scheduler.waiting, *scheduler.running]
    return SchedulerState(
        waiting=[seq.seq_id for seq in scheduler.waiting],
        running=[seq.seq_id for seq in scheduler.running],
        block_tables={seq.seq_id: list(seq.block_table) for seq in queued if seq.block_table},
        ref_counts=[block.ref_count for block in manager.blocks],
        hashes=[block.hash for block in manager.blocks],
        hash_index=dict(manager.hash_to_block_id),
        free_blocks=list(manager.free_block_ids),
    )


class Fold:
    """A mutable SchedulerState that events are applied to.

    `last_tables` keeps the tables of sequences that end. Code that applies events clears it between two steps.
    """

    def __init__(self, state: SchedulerState) -> None:
        self.waiting = deque(state.waiting)
        self.running = deque(state.running)
        self.block_tables = {seq_id: list(table) for seq_id, table in state.block_tables.items()}
        self.ref_counts = list(state.ref_counts)
        self.hashes = list(state.hashes)
        self.hash_index = dict(state.hash_index)
        self.free_blocks = OrderedDict.fromkeys(state.free_blocks)
        self.live = {*state.waiting, *state.running}
        self.last_tables: dict[int, list[int]] = {}

    @property
    def num_used_blocks(self) -> int:
        """Blocks that at least one sequence holds."""
        return len(self.ref_counts) - len(self.free_blocks)

    def freeze(self) -> SchedulerState:
        """A copy that later events do not change."""
        return SchedulerState(
            list(self.waiting),
            list(self.running),
            {seq_id: list(table) for seq_id, table in self.block_tables.items()},
            list(self.ref_counts),
            list(self.hashes),
            dict(self.hash_index),
            list(self.free_blocks),
        )

    def apply(self, event: Event) -> None:
        """Raises ValueError if `event` cannot follow the events before it."""
        try:
            APPLY[event.kind](self, event)
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"the trace does not fold: {event} contradicts the state before it ({error})") from error

    def _arrive(self, event: Any) -> None:
        if event.seq_id in self.live:
            raise ValueError("already queued")
        self.live.add(event.seq_id)
        self.waiting.append(event.seq_id)

    def _admit(self, event: Any) -> None:
        if event.seq_id in self.block_tables:
            raise ValueError("already has a table")
        self.block_tables[event.seq_id] = []

    def _run(self, event: Any) -> None:
        if self.waiting[0] != event.seq_id:
            raise ValueError(f"head of waiting is {self.waiting[0]}")
        self.running.append(self.waiting.popleft())

    def _preempt(self, event: Any) -> None:
        self.running.remove(event.seq_id)
        self.waiting.appendleft(event.seq_id)

    def _finish(self, event: Any) -> None:
        late = event.data.get("late")
        if late != "ended":
            self._leave(event.seq_id, self.waiting if late == "waiting" else self.running)
        elif event.seq_id in self.live:
            raise ValueError("has not ended, so there is no reason to correct")

    def _abort(self, event: Any) -> None:
        self._leave(event.seq_id, self.running if event.seq_id in self.running else self.waiting)

    def _leave(self, seq_id: int, queue: deque[int]) -> None:
        self.live.remove(seq_id)
        queue.remove(seq_id)
        # The rows of a step keep the table with which they ran, though its blocks are released next.
        self.last_tables[seq_id] = list(self.block_tables.get(seq_id, []))

    def _allocate(self, event: Any) -> None:
        if self.hashes[event.block_id] != NO_HASH:
            raise ValueError("block still carries a hash")
        self._reuse(event)

    def _reuse(self, event: Any) -> None:
        del self.free_blocks[event.block_id]
        self.ref_counts[event.block_id] += 1
        self.block_tables[event.seq_id].append(event.block_id)

    def _share(self, event: Any) -> None:
        if self.ref_counts[event.block_id] < 1:
            raise ValueError("block is not in use")
        self.ref_counts[event.block_id] += 1
        self.block_tables[event.seq_id].append(event.block_id)

    def _release(self, event: Any) -> None:
        table = self.block_tables[event.seq_id]
        if table.pop() != event.block_id:
            raise ValueError("not the tail of the table")
        if not table:
            del self.block_tables[event.seq_id]
        self.ref_counts[event.block_id] -= 1
        if self.ref_counts[event.block_id] == 0:
            self.free_blocks[event.block_id] = None

    def _register_hash(self, event: Any) -> None:
        if self.ref_counts[event.block_id] < 1:
            raise ValueError("block is not in use")
        self.hashes[event.block_id] = event.data["hash"]
        self.hash_index[event.data["hash"]] = event.block_id

    def _evict_hash(self, event: Any) -> None:
        if self.hashes[event.block_id] != event.data["hash"]:
            raise ValueError(f"block carries {self.hashes[event.block_id]}")
        self.hashes[event.block_id] = NO_HASH
        if self.hash_index.get(event.data["hash"]) == event.block_id:
            del self.hash_index[event.data["hash"]]


APPLY = {kind: getattr(Fold, f"_{kind}") for kind in KINDS}


class Replay:
    """Folds a growing list of events to any step, forward in one pass and backward from checkpoints."""

    def __init__(self, initial: SchedulerState, events: list[Event]) -> None:
        self._events = events
        self._checkpoints: dict[int, SchedulerState] = {-1: initial}
        self._fold = Fold(initial)
        self._step = -1  # the fold holds the state after this step

    def at(self, step: int) -> Fold:
        """The state after `step` (-1: before the first). Valid until the next call; `freeze` it to keep it."""
        if step < self._step:
            # Strictly before `step`, so that its own events are applied and `last_tables` is complete.
            self._step = max((known for known in self._checkpoints if known < step), default=-1)
            self._fold = Fold(self._checkpoints[self._step])
        while self._step < step:
            self._advance()
        return self._fold

    def _advance(self) -> None:
        self._fold.last_tables = {}
        try:
            for event in events_of_step(self._events, self._step + 1):
                self._fold.apply(event)
        except ValueError:  # half applied: start over next time, and fail there again
            self._step, self._fold = -1, Fold(self._checkpoints[-1])
            raise
        self._step += 1
        if self._step % CHECKPOINT_EVERY == 0 and self._step not in self._checkpoints:
            self._checkpoints[self._step] = self._fold.freeze()


def events_of_step(events: list[Event], step: int) -> list[Event]:
    """The events stamped with `step`; `events` are in step order."""
    start = bisect_left(events, step, key=attrgetter("step"))
    return events[start : bisect_right(events, step, lo=start, key=attrgetter("step"))]


class Unread:
    """Reads the growing events of a trace once, in order."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._next = trace, 0

    def up_to(self, step: int) -> list[Event]:
        """Events of `step` and before that were not read yet."""
        events, start = self._trace.events, self._next
        self._next = bisect_right(events, step, lo=start, key=attrgetter("step"))
        return events[start : self._next]
