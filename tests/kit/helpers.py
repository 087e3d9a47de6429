"""What several test files share: short ways to write prompts and runs, and an independent look at live state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from nanoinfer import EngineConfig, SamplingParams, Scheduler, Sequence, Trace
from nanoinfer.core.engine_core import EngineCore
from nanoinfer.core.overlap.loop import OverlappedCore
from nanoinfer.core.plan import StepPlan, StepResult
from nanoinfer.core.policies import POLICIES as KNOWN_POLICIES
from nanoinfer.sim.simulate import default_token

POLICIES = list(KNOWN_POLICIES)  # tests that hold for every policy are parametrised with it
TokenFn = Callable[[list[int]], int]


def one_in(share: int, cases: Iterable[Any]) -> list[Any]:
    """For `parametrize`: the first of every `share` cases belongs to the default run, the others are slow."""
    return [slow(case) if i % share else case for i, case in enumerate(cases)]


def slow(case: Any) -> Any:
    """For `parametrize`: a case that CI runs and the default run leaves out."""
    return pytest.param(case, marks=pytest.mark.slow)


def prompt(n: int, tag: int = 0) -> list[int]:
    """`n` token ids that share nothing with a prompt of another tag."""
    return [tag * 1000 + i + 1 for i in range(n)]


def params(max_tokens: int, **more: Any) -> SamplingParams:
    """Greedy, and deaf to eos unless told otherwise."""
    return SamplingParams(**{"temperature": 0, "max_tokens": max_tokens, "ignore_eos": True} | more)


def config(bs: int, nb: int, B: int = 64, M: int = 8, **more: Any) -> EngineConfig:
    """A config in the short letters of `tests/cases.md`."""
    return EngineConfig(**limits(bs, nb, B, M), **more)


def limits(bs: int, nb: int, B: int = 64, M: int = 8) -> dict[str, int]:
    """The limits alone. bs: block size, nb: blocks, B: token budget, M: sequences in a batch."""
    return {"kvcache_block_size": bs, "num_kvcache_blocks": nb, "max_num_batched_tokens": B, "max_num_seqs": M}


def rows(step: Any) -> list[tuple[int, int, int, list[int]]]:
    """(seq_id, num_computed, num_scheduled, block_table) of each row of a step or a plan."""
    return [(r.seq_id, r.num_computed, r.num_scheduled, r.block_table) for r in step.rows]


def short(step: Any) -> str:
    """A step in one line, as in `0:8+1@[3, 4, 6]`."""
    return " ".join(f"{seq}:{computed}+{scheduled}@{table}" for seq, computed, scheduled, table in rows(step))


def tokens(trace: Trace, seq_id: int) -> list[int]:
    """The completion of a request, in input order of `trace.outputs`."""
    return next(output["token_ids"] for output in trace.outputs if output["request_id"] == seq_id)


class FunctionRunner:
    """A runner that draws every token from a function of the whole context, however late it is asked for."""

    def __init__(self, token_fn: TokenFn = default_token) -> None:
        self.token_fn = token_fn
        self.plans: list[StepPlan] = []

    def run(self, plan: StepPlan) -> StepResult:
        return self.launch(plan).result()

    def launch(self, plan: StepPlan) -> DrawLater:
        self.plans.append(plan)
        return DrawLater(self.token_fn, [(row.seq, row.num_computed + row.num_scheduled) for row in plan.rows])


@dataclass
class DrawLater:
    """A launched plan: by when it is waited for, the tokens before it are known."""

    token_fn: TokenFn
    contexts: list[tuple[Sequence, int]]

    def result(self) -> StepResult:
        return StepResult([self.token_fn(list(seq.token_ids[:end])) for seq, end in self.contexts])


def make_core(settings: EngineConfig, runner: Any = None, **classes: Any) -> EngineCore:
    """An engine core on a clock that counts its readings."""
    readings = iter(range(10**9))
    loop = OverlappedCore if settings.overlap else EngineCore
    return loop(settings, runner or FunctionRunner(), lambda: float(next(readings)), "steps", "test", **classes)


def run_all(core: EngineCore, limit: int = 1000) -> list[Sequence]:
    """Step until nothing is queued; the finished sequences."""
    done: list[Sequence] = []
    for _ in range(limit):
        if core.is_finished():
            return done
        done += core.step()
    raise AssertionError(f"not finished after {limit} steps\n{core.scheduler}")


def step_by_hand(scheduler: Scheduler, token_fn: TokenFn = default_token) -> StepPlan:
    """One schedule() and postprocess() without any engine."""
    plan = scheduler.schedule()
    scheduler.postprocess(plan, [token_fn(row.seq.token_ids) for row in plan.rows])
    return plan


def live_state(scheduler: Scheduler) -> dict[str, Any]:
    """The scheduler's state read straight from its objects, in the shape of `vars(trace.state(i))`."""
    manager = scheduler.block_manager
    tables = {seq.seq_id: list(seq.block_table) for seq in [*scheduler.waiting, *scheduler.running]}
    return {
        "waiting": [seq.seq_id for seq in scheduler.waiting],
        "running": [seq.seq_id for seq in scheduler.running],
        "block_tables": {seq_id: table for seq_id, table in tables.items() if table},
        "ref_counts": [block.ref_count for block in manager.blocks],
        "hashes": [block.hash for block in manager.blocks],
        "hash_index": dict(manager.hash_to_block_id),
        "free_blocks": list(manager.free_block_ids),
    }


def check_pool(scheduler: Scheduler) -> None:
    """Blocks are conserved, counted by the tables that hold them, and found only under their own hash."""
    manager = scheduler.block_manager
    free, blocks = list(manager.free_block_ids), manager.blocks
    held = [0] * len(blocks)
    for seq in [*scheduler.waiting, *scheduler.running]:
        assert len(set(seq.block_table)) == len(seq.block_table), f"a block twice in the table of {seq!r}"
        for block_id in seq.block_table:
            held[block_id] += 1
    assert len(set(free)) == len(free), f"duplicates in the free list {free}"
    assert set(free) == {i for i, count in enumerate(held) if count == 0}, "free and used do not make up the pool"
    assert [block.ref_count for block in blocks] == held, "reference counts differ from the tables"
    for block_hash, block_id in manager.hash_to_block_id.items():
        assert blocks[block_id].hash == block_hash, f"block {block_id} is found under a hash that is not its own"
        assert len(blocks[block_id].token_ids) == manager.block_size, f"block {block_id} is findable but not whole"


def all_free(scheduler: Scheduler) -> bool:
    """Whether nothing is queued and every block lies in the free list."""
    free = scheduler.block_manager.free_block_ids
    return scheduler.is_finished() and sorted(free) == list(range(scheduler.config.num_kvcache_blocks))


def sequences(lengths: Iterable[int], block_size: int, max_tokens: int = 4) -> list[Sequence]:
    """Sequences 0, 1, ... with prompts of these lengths that share nothing."""
    return [Sequence(i, prompt(n, i), params(max_tokens), block_size) for i, n in enumerate(lengths)]
