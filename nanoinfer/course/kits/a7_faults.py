"""Assignment 7: runs into which one fault is injected, for `diagnose` to find.

Each fault is a subclass of the scheduler or of the block manager; it needs their public methods and plain state alone.
What was injected, and when, is the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from collections.abc import Sequence as Tokens
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from nanoinfer.core.block_manager import Block, BlockManager, CachedPrefix
from nanoinfer.core.plan import StepPlan
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.core.sequence import Sequence
from nanoinfer.course.grading.failures import explain_failure
from nanoinfer.course.kits.requests import random_requests
from nanoinfer.reasons import Preemption, StopReason
from nanoinfer.sim.simulate import simulate
from nanoinfer.trace.state import NO_HASH
from nanoinfer.trace.trace import Trace

RULES = {
    "over_budget": "the prefill rows of a step must not have more tokens than max_num_batched_tokens",
    "second_cut": "only the first sequence of a prefill batch may be cut into chunks",
    "skipped_head": "no sequence is admitted before the head of waiting",
    "wrong_victim": "the victim is always the last of running",
    "lost_token": "a row that completes its sequence gives a token",
    "early_block": "no block is taken before a token needs it",
    "leaked_block": "a sequence that finishes or is preempted gives up all of its blocks in that step",
    "stale_hash": "a block that is taken for new content has no hash any more",
    "early_hash": "a block is registered in the step that computes its last token, not before",
    "wrong_hit": "a block is a hit only if it was registered for exactly these tokens and all before them",
}


class Finding(NamedTuple):
    """What went wrong (a key of RULES), in which step, and for which sequence."""

    kind: str
    step: int
    seq_id: int


class Fault:
    """Stands before the scheduler or the block manager among the bases of a class that is right but for one moment."""

    kind: str
    when: int  # from this step on, it happens as soon as it can
    finding: ClassVar[Finding | None] = None  # once it has happened
    recorder: Any

    def is_due(self) -> bool:
        return self.finding is None and self.recorder.step >= self.when

    def happened(self, seq_id: int) -> None:
        type(self).finding = Finding(self.kind, self.recorder.step, seq_id)


class OverBudget(Fault, Scheduler):
    """Plans one prefill step with twice the budget."""

    def schedule(self) -> StepPlan:
        limit = self.max_num_batched_tokens
        if self.is_due():
            self.max_num_batched_tokens = 2 * limit
        plan = super().schedule()
        self.max_num_batched_tokens = limit
        batched = 0
        for row in plan.rows if plan.phase == "prefill" else ():
            batched += row.num_scheduled
            if batched > limit and self.finding is None:
                self.happened(row.seq_id)
        return plan


class SecondCut(Fault, Scheduler):
    """Cuts the sequence that no longer fits into the rest of a batch."""

    def schedule(self) -> StepPlan:
        plan = super().schedule()
        if plan.stop.reason == StopReason.CHUNK_NOT_ALLOWED and self.is_due():
            head = self.waiting[0]
            self.block_manager.allocate(head, self.block_manager.can_allocate(head))
            head.num_scheduled_tokens = self.max_num_batched_tokens - plan.num_batched_tokens
            plan.rows.append(self.prefill_row(head))
            self.happened(head.seq_id)
        return plan


class SkippedHead(Fault, Scheduler):
    """Admits the second in waiting once."""

    def schedule(self) -> StepPlan:
        waiting = self.waiting
        if len(waiting) < 2 or waiting[0].block_table or not self.is_due():
            return super().schedule()
        waiting[0], waiting[1] = waiting[1], waiting[0]
        second = waiting[0]
        plan = super().schedule()
        if second.block_table:
            self.happened(second.seq_id)
        else:  # it was not admitted, so nothing happened
            waiting.remove(second)
            waiting.insert(1, second)
        return plan


class WrongVictim(Fault, Scheduler):
    """Preempts the first of running once."""

    def preempt(self, seq: Sequence, on_behalf_of: Sequence | None = None) -> Preemption:
        if self.running and on_behalf_of not in (None, seq) and self.is_due():
            self.running.append(seq)
            seq = self.running.popleft()
            self.happened(seq.seq_id)
        return super().preempt(seq, on_behalf_of)


class EarlyHash(Fault, Scheduler):
    """Registers the last full block of a prompt with one of its earlier chunks."""

    def schedule(self) -> StepPlan:
        plan = super().schedule()
        row, size = plan.rows[-1], self.block_manager.block_size
        seq, counters = row.seq, (row.num_computed, row.num_scheduled)
        last = len(seq) // size - 1
        if (last + 1) * size > sum(counters) and row.chunk and self.is_due():
            seq.num_computed_tokens, seq.num_scheduled_tokens = last * size, size
            self.block_manager.hash_blocks(seq)
            seq.num_computed_tokens, seq.num_scheduled_tokens = counters
            self.happened(seq.seq_id)
        return plan


class LostToken(Fault, Scheduler):
    """Does not tell the token of one row."""

    def postprocess(self, plan: StepPlan, token_ids: Tokens[int]) -> None:
        super().postprocess(plan, token_ids)
        rows = [row for row in plan.rows if row.token_id is not None]
        if rows and self.is_due():
            row = rows[self.when % len(rows)]
            row.token_id = None
            self.happened(row.seq_id)


class EarlyBlock(Fault, BlockManager):
    """Takes a block for the token after the next."""

    def may_append(self, seq: Sequence) -> None:
        super().may_append(seq)
        full = len(seq) == len(seq.block_table) * self.block_size
        if full and self.free_block_ids and self.is_due():
            seq.token_ids.append(0)
            super().may_append(seq)
            seq.token_ids.pop()
            self.happened(seq.seq_id)


class LeakedBlock(Fault, BlockManager):
    """Keeps the first block of a table that is given up."""

    def deallocate(self, seq: Sequence) -> None:
        if seq.block_table and self.is_due():
            seq.block_table = seq.block_table[1:]
            self.happened(seq.seq_id)
        super().deallocate(seq)


class StaleHash(Fault, BlockManager):
    """Takes a findable block and does not forget its hash."""

    def allocate(self, seq: Sequence, num_cached_blocks: int) -> None:
        with self._not_forgetting(seq):
            super().allocate(seq, num_cached_blocks)

    def may_append(self, seq: Sequence) -> None:
        with self._not_forgetting(seq):
            super().may_append(seq)

    @contextmanager
    def _not_forgetting(self, seq: Sequence) -> Iterator[None]:
        """The first free block keeps its hash, whoever takes it: while it is taken, it seems to have none."""
        first = next(iter(self.free_block_ids), None)
        if first is None or not self.is_due():
            yield
            return
        block, block_hash = self.blocks[first], self.blocks[first].hash
        block.hash = NO_HASH
        yield
        block.hash = block_hash
        if block_hash != NO_HASH and first in seq.block_table[seq.num_cached_tokens // self.block_size :]:
            self.happened(seq.seq_id)


class WrongHit(Fault, BlockManager):
    """Finds a block that holds other tokens."""

    def can_allocate(self, seq: Sequence) -> int:
        with self._mistaken(seq):
            return super().can_allocate(seq)

    def allocate(self, seq: Sequence, num_cached_blocks: int) -> None:
        with self._mistaken(seq) as wrong:
            super().allocate(seq, num_cached_blocks)
        if wrong and wrong.block_id in seq.block_table:
            self.happened(seq.seq_id)

    @contextmanager
    def _mistaken(self, seq: Sequence) -> Iterator[Block | None]:
        """Meanwhile a findable block seems to hold what the prefix lookup of `seq` misses first."""
        hits, block_hash = [], NO_HASH
        for i in range(seq.num_blocks - 1):
            block_hash = self.compute_hash(seq.block(i), block_hash)
            if block_hash not in self.hash_to_block_id:
                break
            hits.append(self.blocks[self.hash_to_block_id[block_hash]])
        others = [self.blocks[b] for b in self.hash_to_block_id.values() if self.blocks[b] not in hits]
        if not others or len(hits) >= seq.num_blocks - 1 or not self.is_due():
            yield None
            return
        wrong, content = others[0], others[0].content
        wrong.content = CachedPrefix(seq.block(len(hits)), hits[-1].content if hits else None)
        self.hash_to_block_id[block_hash] = wrong.block_id
        yield wrong
        wrong.content = content
        del self.hash_to_block_id[block_hash]


FAULTS: dict[str, type[Fault]] = {
    "over_budget": OverBudget,
    "second_cut": SecondCut,
    "skipped_head": SkippedHead,
    "wrong_victim": WrongVictim,
    "lost_token": LostToken,
    "early_hash": EarlyHash,
    "early_block": EarlyBlock,
    "leaked_block": LeakedBlock,
    "stale_hash": StaleHash,
    "wrong_hit": WrongHit,
}


@dataclass
class Run:
    """A run to look into, and the fault in it; None where there is none."""

    trace: Trace
    finding: Finding | None


def faultless_run(seed: int) -> Run:
    """A run without a fault: chunks, hits, preemptions."""
    return Run(simulate(**random_requests(seed, spare_blocks=seed % 3).arguments), None)


def faulty_run(kind: str, seed: int) -> Run:
    """A run with one fault of this kind: the same seed gives the same one."""
    rng = random.Random(f"{kind} {seed}")
    while True:
        work = random_requests(rng.randrange(10**6), spare_blocks=rng.randrange(3))
        fault: Any = type("Faulty", (FAULTS[kind],), {"kind": kind, "when": rng.randrange(1, 12)})
        role = "scheduler_cls" if issubclass(fault, Scheduler) else "block_manager_cls"
        with suppress(RuntimeError, AssertionError):  # the fault may bring the engine down; then another run is tried
            trace = simulate(**work.arguments | {role: fault})
            trace.header.scheduler_cls = trace.header.block_manager_cls = "?"  # it would tell
            if fault.finding:
                return Run(trace, fault.finding)


def expect_diagnosis(diagnose: Callable[..., Any], run: Run, suspects: Collection[str] = frozenset(RULES)) -> None:
    """Raise AssertionError unless `diagnose` finds the fault of `run`, or none where there is none."""
    trace, finding = run.trace, run.finding
    got = diagnose(trace, suspects)
    if finding is None:
        place = got[1] if isinstance(got, tuple) and len(got) == 3 and got[1] in range(len(trace.steps)) else -1
        assert got is None, explain_failure(trace, place, f"None, got {got}", "this run has no fault", "the run")
        return
    right = got is not None and tuple(got) == finding
    assert right, explain_failure(trace, finding.step, f"{finding}, got {got}", RULES[finding.kind], "the run")
