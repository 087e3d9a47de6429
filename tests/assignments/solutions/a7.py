"""Assignment 7: find the bug.

You get the recording of a run under the default policy in which one thing went wrong, once. Say what, when, and for
whom: `Finding(kind, step, seq_id)`. The notebook says which kinds there are and the rule that each of them breaks.

A trace with a fault need not fold: then `trace.state(i)`, and with it `step.rows` and `trace.explain(i)`, raise
ValueError from the fault on. `trace.events` and `step.columns` can always be read: follow the events yourself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from nanoinfer import Trace
from nanoinfer.course.kits.a7_faults import Finding
from nanoinfer.trace.events import Event
from nanoinfer.trace.state import events_of_step


def diagnose(trace: Trace, suspects: Collection[str]) -> Finding | None:
    """The first fault in `trace` that is of one of the kinds in `suspects`; None if there is none.

    The sequence is the one that the rule was broken for:

    - over_budget: the first one whose row no longer fits into the budget
    - second_cut: the one that was cut and is not the first of its batch
    - skipped_head: the one that was admitted before the head
    - wrong_victim: the one that was preempted
    - lost_token: the one whose token is missing
    - early_block, stale_hash: the one that the block was taken for
    - leaked_block: the one that finished or was preempted
    - early_hash: the one whose block was registered
    - wrong_hit: the one that got the wrong block
    """
    # BEGIN SOLUTION
    walk = Walk(trace)
    for index in range(len(trace.steps)):
        for kind, seq_id in walk.step(index):
            if kind in suspects:
                return Finding(kind, index, seq_id)
    return None
    # END SOLUTION


# BEGIN SOLUTION
@dataclass
class Walk:
    """What the events say so far; `step` goes one step on and yields (kind, sequence) for every broken rule."""

    trace: Trace
    waiting: deque[int] = field(default_factory=deque)
    running: list[int] = field(default_factory=list)
    tables: dict[int, list[int]] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    cached: dict[int, list[int]] = field(default_factory=dict)  # registered block: all tokens up to its end

    def step(self, index):
        size = self.trace.config.kvcache_block_size
        c = self.trace.steps[index].columns
        ends = {
            seq_id: computed + scheduled
            for seq_id, computed, scheduled in zip(c.seq_id, c.num_computed, c.num_scheduled, strict=True)
        }
        gone = []
        for event in events_of_step(self.trace.events, index):
            if event.kind in ("finish", "preempt"):
                gone.append(event.seq_id)
            yield from self.queues(event)
            yield from self.blocks(event, size, ends)
        yield from (("leaked_block", seq_id) for seq_id in gone if self.tables[seq_id])
        yield from self.rows(c, ends)

    def queues(self, event: Event):
        seq_id = event.seq_id
        if event.kind == "arrive":
            self.waiting.append(seq_id)
            self.tokens[seq_id] = list(self.trace.requests[seq_id].prompt_token_ids)
        elif event.kind == "admit":
            self.tables[seq_id] = []
            if self.waiting[0] != seq_id:
                yield "skipped_head", seq_id
        elif event.kind == "run":
            self.waiting.remove(seq_id)
            self.running.append(seq_id)
        elif event.kind == "preempt":
            if self.running[-1] != seq_id:
                yield "wrong_victim", seq_id
            self.running.remove(seq_id)
            self.waiting.appendleft(seq_id)
        elif event.kind == "finish":
            self.running.remove(seq_id)

    def blocks(self, event: Event, size: int, ends: dict[int, int]):
        seq_id, block = event.seq_id, event.block_id
        table = self.tables.get(seq_id, [])
        if event.kind in ("allocate", "reuse", "share"):
            table.append(block)
        elif event.kind == "release":
            table.remove(block)
        elif event.kind == "evict_hash":
            del self.cached[block]
        if event.kind == "allocate":
            if block in self.cached:
                yield "stale_hash", seq_id
            if (len(table) - 1) * size >= len(self.tokens[seq_id]):
                yield "early_block", seq_id
        elif event.kind in ("reuse", "share") and self.cached.get(block) != self.tokens[seq_id][: len(table) * size]:
            yield "wrong_hit", seq_id
        elif event.kind == "register_hash":
            end = (table.index(block) + 1) * size
            if end > ends[seq_id]:
                yield "early_hash", seq_id
            self.cached[block] = self.tokens[seq_id][:end]

    def rows(self, c, ends: dict[int, int]):
        batched, budget = 0, self.trace.config.max_num_batched_tokens
        for i, seq_id in enumerate(c.seq_id):
            batched += c.num_scheduled[i]
            is_complete = ends[seq_id] == len(self.tokens[seq_id])
            if c.chunk[i] and batched > budget:
                yield "over_budget", seq_id
            if i > 0 and not is_complete:
                yield "second_cut", seq_id
            if is_complete and c.token_id[i] is None:
                yield "lost_token", seq_id
        for seq_id, token in zip(c.seq_id, c.token_id, strict=True):
            if token is not None:
                self.tokens[seq_id].append(token)


# END SOLUTION
