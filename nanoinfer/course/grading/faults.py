"""Runs in which something goes wrong once: what the tests of assignment 7 hand to `diagnose`.

Each fault is a subclass of the scheduler or of the block manager that behaves but for one moment, or a recording of
which one entry is wrong. What was planted, and when, is the answer that a diagnosis must give.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from nanoinfer.core.block_manager import Block, BlockManager, CachedPrefix
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.core.sequence import Sequence
from nanoinfer.course.grading.cases import random_requests
from nanoinfer.course.grading.failures import explain_failure
from nanoinfer.reasons import Preemption, StopReason
from nanoinfer.sim.simulate import simulate
from nanoinfer.trace.trace import Trace

RULES = {
    "over_budget": "the prefill rows of a step must not have more tokens than max_num_batched_tokens",
    "second_cut": "only the first sequence of a prefill batch may be cut into chunks",
    "skipped_head": "nobody is admitted before the head of waiting",
    "wrong_victim": "the victim is always the last of running",
    "lost_token": "a row that completes its sequence gives a token",
    "early_block": "no block is taken before a token needs it",
    "leaked_block": "who finishes or is preempted gives all of its blocks up in that step",
    "stale_hash": "a block that is taken for new content has no hash any more",
    "early_hash": "a block is registered in the step that computes its last token, not before",
    "wrong_hit": "a block is a hit only if it was registered for exactly these tokens and all before them",
}


class Finding(NamedTuple):
    """What went wrong (a key of RULES), in which step, and for which sequence."""

    kind: str
    step: int
    seq_id: int


class Plant:
    """Decides when the fault happens, and remembers it."""

    def __init__(self, kind: str, when: int) -> None:
        self.kind, self.when = kind, when
        self.finding: Finding | None = None

    def is_due(self, recorder: Any) -> bool:
        return self.finding is None and recorder.step >= self.when

    def fire(self, recorder: Any, seq_id: int) -> None:
        self.finding = Finding(self.kind, recorder.step, seq_id)


class FaultyScheduler(Scheduler):
    """A scheduler with a plant; a subclass says what it does."""

    plant: Plant


class FaultyManager(BlockManager):
    """A block manager with a plant; a subclass says what it does."""

    plant: Plant


class OverBudget(FaultyScheduler):
    """Plans one prefill step with twice the budget."""

    def schedule(self) -> StepPlan:
        limit = self.max_num_batched_tokens
        if self.plant.is_due(self.recorder):
            self.max_num_batched_tokens = 2 * limit
        plan = super().schedule()
        self.max_num_batched_tokens = limit
        batched = 0
        for row in plan.rows if plan.phase == "prefill" else ():
            batched += row.num_scheduled
            if batched > limit and self.plant.finding is None:
                self.plant.fire(self.recorder, row.seq_id)
        return plan


class SecondCut(FaultyScheduler):
    """Cuts the sequence that no longer fits into the rest of a batch."""

    def schedule(self) -> StepPlan:
        plan = super().schedule()
        if plan.stop.reason == StopReason.CHUNK_NOT_ALLOWED and self.plant.is_due(self.recorder):
            remaining = self.max_num_batched_tokens - plan.num_batched_tokens
            head = self.waiting[0]
            self.block_manager.allocate(head, self.block_manager.can_allocate(head))
            plan.rows.append(self.schedule_prefill(head, remaining))
            self.plant.fire(self.recorder, head.seq_id)
        return plan


class SkippedHead(FaultyScheduler):
    """Admits the second in waiting once."""

    def schedule(self) -> StepPlan:
        waiting = self.waiting
        if len(waiting) < 2 or waiting[0].block_table or not self.plant.is_due(self.recorder):
            return super().schedule()
        waiting[0], waiting[1] = waiting[1], waiting[0]
        second = waiting[0]
        plan = super().schedule()
        if second.block_table:
            self.plant.fire(self.recorder, second.seq_id)
        else:  # it was not admitted, so nothing happened
            waiting.remove(second)
            waiting.insert(1, second)
        return plan


class WrongVictim(FaultyScheduler):
    """Preempts the first of running once."""

    def make_room(self, seq: Sequence) -> tuple[bool, list[Preemption]]:
        victims = []
        full = not self.block_manager.can_append(seq)
        if full and len(self.running) >= 2 and self.plant.is_due(self.recorder):
            first = self.running.popleft()
            self.plant.fire(self.recorder, first.seq_id)
            victims.append(self.preempt(first, on_behalf_of=seq))
        can_decode, more = super().make_room(seq)
        return can_decode, victims + more


class EarlyHash(FaultyScheduler):
    """Registers the last full block of a prompt with one of its earlier chunks."""

    def schedule_prefill(self, seq: Sequence, num_tokens: int) -> Row:
        end, last = seq.num_computed_tokens + num_tokens, len(seq) // self.block_manager.block_size - 1
        if (last + 1) * self.block_manager.block_size > end and self.plant.is_due(self.recorder):
            self.block_manager._register(seq, last, None)
            self.plant.fire(self.recorder, seq.seq_id)
        return super().schedule_prefill(seq, num_tokens)


class EarlyBlock(FaultyManager):
    """Takes a block for the token after the next."""

    def may_append(self, seq: Sequence) -> None:
        super().may_append(seq)
        full = len(seq) == len(seq.block_table) * self.block_size
        if full and self.free_block_ids and self.plant.is_due(self.recorder):
            self._take_new(seq)
            self.plant.fire(self.recorder, seq.seq_id)


class LeakedBlock(FaultyManager):
    """Keeps the first block of a table that is given up."""

    def deallocate(self, seq: Sequence) -> None:
        if seq.block_table and self.plant.is_due(self.recorder):
            seq.block_table = seq.block_table[1:]
            self.plant.fire(self.recorder, seq.seq_id)
        super().deallocate(seq)


class StaleHash(FaultyManager):
    """Takes a findable block and does not forget its hash."""

    taking: Sequence

    def _take_new(self, seq: Sequence) -> None:
        self.taking = seq
        super()._take_new(seq)

    def _forget(self, block: Block) -> None:
        if block.hash != -1 and self.plant.is_due(self.recorder):
            self.plant.fire(self.recorder, self.taking.seq_id)
        else:
            super()._forget(block)


class WrongHit(FaultyManager):
    """Finds a block that holds other tokens."""

    is_looking = False

    def allocate(self, seq: Sequence, num_cached_blocks: int) -> None:
        was_due, right = self.plant.is_due(self.recorder), len(super()._prefix_hits(seq))
        super().allocate(seq, num_cached_blocks)
        if was_due and num_cached_blocks > right:
            self.plant.fire(self.recorder, seq.seq_id)

    def _prefix_hits(self, seq: Sequence) -> list[Block]:
        self.is_looking = self.plant.is_due(self.recorder)
        hits = super()._prefix_hits(seq)
        self.is_looking = False
        return hits

    def _find(self, block_hash: int, token_ids: list[int], parent: CachedPrefix | None) -> Block | None:
        right = super()._find(block_hash, token_ids, parent)
        if right or not self.is_looking or not self.hash_to_block_id:
            return right
        self.is_looking = False  # one wrong block is enough
        return self.blocks[next(iter(self.hash_to_block_id.values()))]


FAULTS: dict[str, type[FaultyScheduler | FaultyManager]] = {
    "over_budget": OverBudget,
    "second_cut": SecondCut,
    "skipped_head": SkippedHead,
    "wrong_victim": WrongVictim,
    "early_hash": EarlyHash,
    "early_block": EarlyBlock,
    "leaked_block": LeakedBlock,
    "stale_hash": StaleHash,
    "wrong_hit": WrongHit,
}


@dataclass
class Patient:
    """A run to diagnose, and what is wrong with it; None for a healthy one."""

    trace: Trace
    finding: Finding | None


def healthy(seed: int) -> Patient:
    """A run with nothing planted: chunks, hits, preemptions."""
    trace = simulate(**random_requests(seed, spare_blocks=seed % 3).arguments)
    return Patient(trace, None)


def ill(kind: str, seed: int) -> Patient:
    """A run with one fault of this kind: the same seed gives the same one."""
    rng = random.Random(f"{kind} {seed}")
    while True:
        work = random_requests(rng.randrange(10**6), spare_blocks=rng.randrange(3))
        plant = Plant(kind, rng.randrange(1, 12))
        if kind == "lost_token":
            trace: Trace | None = _without_a_token(simulate(**work.arguments), plant, rng)
        else:
            trace = _run(work.arguments, plant)
        if trace and plant.finding:
            return Patient(trace, plant.finding)


def _run(arguments: dict[str, Any], plant: Plant) -> Trace | None:
    fault = FAULTS[plant.kind]
    seat = "scheduler_cls" if issubclass(fault, FaultyScheduler) else "block_manager_cls"
    try:
        trace = simulate(**arguments | {seat: type("Faulty", (fault,), {"plant": plant})})
    except (RuntimeError, AssertionError):  # the fault brought the engine down; another run will not
        return None
    trace.header.scheduler_cls = trace.header.block_manager_cls = "?"  # it would tell
    return trace


def _without_a_token(trace: Trace, plant: Plant, rng: random.Random) -> Trace:
    """A fault of the recorder: one token that was sampled is not in the trace."""
    kept = [(step, i) for step in trace.steps for i, token in enumerate(step.columns.token_id) if token is not None]
    step, i = rng.choice(kept)
    step.columns.token_id[i] = None
    plant.finding = Finding(plant.kind, step.index, step.columns.seq_id[i])
    return trace


def expect_diagnosis(
    diagnose: Callable[..., Any], patient: Patient, suspects: Collection[str] = frozenset(RULES)
) -> None:
    """Raise AssertionError unless `diagnose` finds what is wrong, or nothing where nothing is."""
    trace, finding = patient.trace, patient.finding
    got = diagnose(trace, suspects)
    if finding is None:
        place = got[1] if isinstance(got, tuple) and len(got) == 3 and got[1] in range(len(trace.steps)) else -1
        assert got is None, explain_failure(trace, place, f"None, got {got}", "nothing is wrong in this run", "the run")
        return
    right = got is not None and tuple(got) == finding
    assert right, explain_failure(trace, finding.step, f"{finding}, got {got}", RULES[finding.kind], "the run")
