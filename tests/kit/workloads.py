"""Random workloads for the scheduler, and a model of what every physical slot of the KV cache holds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from kit.helpers import POLICIES, check_pool, live_state, make_core
from nanoinfer import EngineConfig, SamplingParams, Sequence, Trace, simulate
from nanoinfer.core.engine_core import EngineCore
from nanoinfer.core.plan import StepPlan, StepResult
from nanoinfer.core.scheduler import scheduler_class

VOCAB = 4  # small, so that prompts and completions meet in the prefix cache


@dataclass
class Workload:
    """Requests with arrival steps, the engine they run on, and what is done to it from outside."""

    config: EngineConfig
    prompts: list[list[int]]
    params: list[SamplingParams]
    arrivals: list[int]
    aborts: dict[int, int] = field(default_factory=dict)  # step -> request
    resets: set[int] = field(default_factory=set)  # steps before which the prefix cache is reset
    salt: int = 0

    def token(self, ids: list[int]) -> int:
        """The next token: a function of the whole context, as far as lengths and the last tokens tell."""
        return (ids[-1] * 5 + ids[len(ids) // 2] * 3 + len(ids) * 7 + self.salt) % VOCAB

    def completion(self, i: int) -> list[int]:
        """What request `i` must give, worked out without any scheduler."""
        ids, p = list(self.prompts[i]), self.params[i]
        while True:
            ids.append(self.token(ids))
            ends = (ids[-1] in self.config.eos and not p.ignore_eos) or ids[-1] in p.stop_token_ids
            done = len(ids) - len(self.prompts[i])
            if ends or done == p.max_tokens or len(ids) == self.config.max_model_len:
                return ids[-done:]


def random_workload(rng: random.Random) -> Workload:
    """A small one that is hard on the scheduler: tight pool, shared prefixes, odd limits."""
    bs = rng.randint(1, 8)
    bases = [[rng.randrange(VOCAB) for _ in range(3 * bs + 2)] for _ in range(2)]
    prompts, params = [], []
    for _ in range(rng.randint(1, 7)):
        head = rng.choice(bases)[: rng.randint(0, 3 * bs + 2)]
        prompts.append((head + [rng.randrange(VOCAB) for _ in range(rng.randint(0, bs))]) or [1])
        params.append(
            SamplingParams(
                max_tokens=rng.randint(1, 2 * bs + 2),
                ignore_eos=rng.random() < 0.5,
                stop_token_ids=[rng.randrange(VOCAB)] if rng.random() < 0.1 else [],
            )
        )
    longest = max(len(ids) + p.max_tokens for ids, p in zip(prompts, params, strict=True))
    max_model_len = max(max(map(len, prompts)) + 1, longest - rng.choice([0, 0, 2]))
    needed = max(
        -(-(min(len(ids) + p.max_tokens, max_model_len) - 1) // bs) for ids, p in zip(prompts, params, strict=True)
    )
    config = EngineConfig(
        kvcache_block_size=bs,
        num_kvcache_blocks=needed + rng.choice([0, 0, 0, 1, 2, 5]),
        max_num_batched_tokens=rng.randint(1, 5 * bs),
        max_num_seqs=rng.randint(1, 5),
        max_model_len=max_model_len,
        policy=rng.choice(POLICIES),
        enable_prefix_caching=rng.random() < 0.8,
        eos=[rng.randrange(VOCAB)] if rng.random() < 0.5 else [],
    )
    spread = rng.choice([0, 0, 6, 20])
    arrivals = [rng.randint(0, spread) for _ in prompts]
    aborts = {rng.randint(0, 25): rng.randrange(len(prompts)) for _ in range(rng.choice([0, 0, 0, 1, 2]))}
    resets = {rng.randint(1, 20)} if rng.random() < 0.1 else set()
    return Workload(config, prompts, params, arrivals, aborts, resets, rng.randrange(100))


class ShadowCache:
    """Which token prefix's KV each physical slot holds.

    A prefix is a node of a trie, named by a number: slot contents are equal if and only if the token
    and all tokens before it are.
    """

    def __init__(self, num_slots: int) -> None:
        self.slots: list[int | None] = [None] * num_slots
        self.nodes: dict[tuple[int, int], int] = {}
        self.prefixes: dict[int, list[int]] = {}  # sequence -> node of each of its positions

    def nodes_of(self, seq: Sequence) -> list[int]:
        known = self.prefixes.setdefault(seq.seq_id, [])
        for token in seq.token_ids[len(known) :]:
            parent = known[-1] if known else -1
            known.append(self.nodes.setdefault((parent, token), len(self.nodes)))
        return known

    def run(self, plan: StepPlan) -> None:
        """Compute a plan: read what is there, write the scheduled positions, and read all of it back."""
        work = []
        for row in plan.rows:
            table, size = row.block_table, row.seq.block_size
            slots = [table[p // size] * size + p % size for p in range(row.num_computed + row.num_scheduled)]
            work.append((row, self.nodes_of(row.seq), slots))
        for row, nodes, slots in work:
            found = [self.slots[slot] for slot in slots[: row.num_computed]]
            assert found == nodes[: row.num_computed], f"{row!r} reads KV that is not its own or not written yet"
        for row, nodes, slots in work:
            assert slots[row.num_computed :] == row.slots
            for position in range(row.num_computed, len(slots)):
                self.slots[slots[position]] = nodes[position]
        for row, nodes, slots in work:
            assert [self.slots[slot] for slot in slots] == nodes[: len(slots)], f"{row!r}: a batch mate overwrote it"


class Driver:
    """Runs a workload on a bare scheduler and checks every promise after every step."""

    def __init__(self, workload: Workload, **classes: Any) -> None:
        self.work = workload
        self.scheduler = scheduler_class(workload.config.policy)(workload.config, **classes)
        self.cache = ShadowCache(workload.config.num_kvcache_blocks * workload.config.kvcache_block_size)
        self.sequences: dict[int, Sequence] = {}
        self.step = 0
        self.num_preempted = self.num_cached = 0

    def run(self) -> None:
        work = self.work
        total = sum(len(ids) + p.max_tokens for ids, p in zip(work.prompts, work.params, strict=True))
        limit = 100 + 4 * total * len(work.prompts)
        last_arrival = max(work.arrivals)
        while self.step <= last_arrival or not self.scheduler.is_finished():
            assert self.step < limit, f"no end after {limit} steps\n{self.scheduler}"
            self._outside()
            if not self.scheduler.is_finished():
                self._one_step()
            self.step += 1
        self._check_end()

    def _outside(self) -> None:
        work, block_size = self.work, self.work.config.kvcache_block_size
        for i, arrival in enumerate(work.arrivals):
            if arrival == self.step:
                self.sequences[i] = Sequence(i, work.prompts[i], work.params[i], block_size)
                self.scheduler.add(self.sequences[i])
        victim = work.aborts.get(self.step)
        if victim is not None and victim in self.scheduler.sequences:
            self.scheduler.abort(victim)
            check_pool(self.scheduler)
        if self.step in work.resets:
            self.scheduler.block_manager.reset_prefix_cache()
            assert self.scheduler.block_manager.hash_to_block_id == {}

    def _one_step(self) -> None:
        before = {seq_id: len(seq) for seq_id, seq in self.scheduler.sequences.items()}
        plan = self.scheduler.schedule()
        self._check_plan(plan)
        self.cache.run(plan)
        self.num_preempted += len(plan.preempted)
        self.num_cached += sum(row.num_cached for row in plan.rows if row.chunk and row.chunk[0] == 1)
        ends = [row.num_computed + row.num_scheduled == len(row.seq) for row in plan.rows]
        self.scheduler.postprocess(plan, [self.work.token(row.seq.token_ids) for row in plan.rows])
        for row, end in zip(plan.rows, ends, strict=True):
            assert (row.token_id is not None) == end, f"{row!r}: a sample is kept if and only if the sequence is done"
            assert len(row.seq) == before[row.seq_id] + end
        check_pool(self.scheduler)

    def _check_plan(self, plan: StepPlan) -> None:
        c, ids = self.work.config, [row.seq_id for row in plan.rows]
        assert 0 < len(ids) <= c.max_num_seqs
        assert len(set(ids)) == len(ids), f"a sequence twice in {plan}"
        if plan.phase != "decode" or c.policy == "mixed":
            assert plan.num_batched_tokens <= c.max_num_batched_tokens
        kinds = {row.chunk is None for row in plan.rows}
        assert plan.phase == {(True,): "decode", (False,): "prefill"}.get(tuple(kinds), "mixed")
        if c.policy == "prefill_first":
            assert plan.phase != "mixed"
            assert all(row.num_computed + row.num_scheduled == len(row.seq) for row in plan.rows[1:])
        for row in plan.rows:
            assert row.num_scheduled > 0
            assert row.num_cached <= row.num_computed < row.num_computed + row.num_scheduled <= len(row.seq)
            assert row.num_computed + row.num_scheduled <= len(row.block_table) * c.kvcache_block_size
            assert row.num_computed + row.num_scheduled < c.max_model_len
        assert not {p.victim for p in plan.preempted} & set(ids), "a victim has a row"
        check_pool(self.scheduler)

    def _check_end(self) -> None:
        manager = self.scheduler.block_manager
        assert sorted(manager.free_block_ids) == list(range(len(manager.blocks)))
        assert not any(block.ref_count for block in manager.blocks)
        assert not self.scheduler.sequences
        for i, seq in self.sequences.items():
            expected = self.work.completion(i)
            if seq.finish_reason == "abort":
                assert seq.completion_token_ids == expected[: seq.num_completion_tokens]
            else:
                assert seq.completion_token_ids == expected, f"request {i}"
        for key, block_id in manager.hash_to_block_id.items():
            self._check_contents(key, block_id)

    def _check_contents(self, key: int, block_id: int) -> None:
        """A findable block's slots hold the KV of exactly the tokens it is found under."""
        block, size = self.scheduler.block_manager.blocks[block_id], self.work.config.kvcache_block_size
        chain, content = [], block.content
        while content is not None:
            chain[:0] = content.token_ids
            content = content.parent
        node, nodes = -1, []
        for token in chain:
            node = self.cache.nodes[node, token]
            nodes.append(node)
        assert self.cache.slots[block_id * size : (block_id + 1) * size] == nodes[-size:], (
            f"block {block_id} under {key}"
        )


class RunnerError(Exception):
    """What a failing forward pass raises."""


class FlakyRunner:
    """Draws tokens from a workload; now and then it fails, or somebody aborts a request while it runs."""

    def __init__(self, work: Workload, rng: random.Random, trouble: float = 0.0) -> None:
        self.work, self.rng, self.trouble = work, rng, trouble
        self.core: EngineCore

    def run(self, plan: StepPlan) -> StepResult:
        if self.rng.random() < self.trouble:
            raise RunnerError
        if self.rng.random() < self.trouble:
            self.core.abort(self.rng.choice(plan.rows).seq_id)
        return StepResult([self.work.token(row.seq.token_ids) for row in plan.rows])


def drive(seed: int, trouble: float = 0.0) -> tuple[Trace, list[dict[str, Any]]]:
    """A random run recorded from a random moment on.

    Returns:
        the trace, and the live state after each recorded step.
    """
    rng = random.Random(seed)
    work = random_workload(rng)
    runner = FlakyRunner(work, rng, trouble)
    runner.core = core = make_core(work.config, runner)
    warm_up = rng.choice([0, 0, 1, 3, 8])
    states = []
    for clock in range(2000):
        if clock == warm_up:
            trace = core.start_trace()
        for i, arrival in enumerate(work.arrivals):
            if arrival == clock:
                core.add(work.prompts[i], work.params[i])
        if clock in work.resets:
            core.scheduler.block_manager.reset_prefix_cache()
        if clock in work.aborts and work.aborts[clock] in core.sequences:
            core.abort(work.aborts[clock])
        try:
            core.step()
        except RunnerError:
            continue
        if clock >= warm_up:
            states += [live_state(core.scheduler)] * (len(trace.steps) - len(states))
        if clock > max(*work.arrivals, warm_up) and core.is_finished():
            return core.stop_trace(), states
    raise AssertionError(f"seed {seed}: no end\n{core.scheduler}")


def pressed_run() -> Trace:
    """Twelve requests, most with one prefix, in a pool that is too small: hits, chunks, refusals, preemptions."""
    rng = random.Random(3)
    prefix = list(range(100, 109))
    prompts, params = [], []
    for i in range(12):
        own = [1000 + 50 * i + j for j in range(rng.randint(3, 16))]
        prompts.append(own if i % 3 == 1 else prefix + own)
        params.append(SamplingParams(max_tokens=rng.randint(6, 18)))
    arrivals = [0, 0, 1, 3, 3, 6, 10, 14, 15, 22, 24, 30]
    limits = {"kvcache_block_size": 4, "num_kvcache_blocks": 24, "max_num_batched_tokens": 16}
    return simulate(prompts, params, arrivals=arrivals, **limits)
