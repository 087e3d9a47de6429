"""Promises that hold after every step of any run, checked on random ones.

A failing run is named by its seed: `Driver(random_workload(random.Random(seed))).run()` repeats it.
"""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.helpers import POLICIES, all_free, check_pool, make_core, one_in
from kit.workloads import VOCAB, Driver, ShadowCache, Workload, random_workload

from nanoinfer import BlockManager, EngineConfig, SamplingParams
from nanoinfer.core.plan import StepResult

SHARDS, RUNS = 20, 1000


class NoChain(BlockManager):
    """Hashes that forget the prefix: equal blocks collide wherever they stand."""

    def compute_hash(self, token_ids, prefix=-1):
        return super().compute_hash(token_ids)


class FewHashes(BlockManager):
    """Almost everything collides."""

    def compute_hash(self, token_ids, prefix=-1):
        return sum(token_ids) % 3


def run_seed(seed: int, **classes) -> Driver:
    driver = Driver(random_workload(random.Random(seed)), **classes)
    try:
        driver.run()
    except BaseException as error:
        error.add_note(f"seed {seed}, step {driver.step}: {driver.work}")
        raise
    return driver


@pytest.mark.parametrize("shard", one_in(6, range(SHARDS)))
def test_every_promise_holds_after_every_step_of_random_workloads(shard):
    """B22, B29, B41, B49: 20,000 runs in all; blocks, counts, budgets, KV contents, completions, an end."""
    runs = [run_seed(shard * RUNS + i) for i in range(RUNS)]
    assert sum(run.num_preempted for run in runs) > RUNS // 4, "the workloads must be hard enough to matter"
    assert sum(run.num_cached for run in runs) > RUNS
    assert len({run.work.config.policy for run in runs}) == len(POLICIES)


@pytest.mark.parametrize("manager_cls", [NoChain, FewHashes])
def test_colliding_hashes_share_no_wrong_block_in_random_workloads(manager_cls):
    """Every row reads the KV of its own tokens although hashes say nothing."""
    runs = [run_seed(10**6 + i, block_manager_cls=manager_cls) for i in range(1000)]
    assert sum(run.num_cached for run in runs) > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_completions_are_the_same_under_both_policies_and_any_pressure(policy):
    """Each run is compared with completions worked out without a scheduler; here on longer requests."""
    for seed in range(40):
        rng = random.Random(seed)
        base = [rng.randrange(VOCAB) for _ in range(40)]
        work = Workload(
            config=EngineConfig(
                kvcache_block_size=4,
                num_kvcache_blocks=19,
                max_num_batched_tokens=rng.choice([7, 16, 100]),
                max_num_seqs=rng.choice([3, 20]),
                policy=policy,
            ),
            prompts=[[*base[: rng.randint(1, 40)], rng.randrange(VOCAB)] for _ in range(12)],
            params=[SamplingParams(max_tokens=rng.randint(1, 30)) for _ in range(12)],
            arrivals=[rng.randint(0, 30) for _ in range(12)],
            salt=seed,
        )
        Driver(work).run()


class Failing(Exception):
    """What a forward pass raises when it fails."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_steps_that_fail_change_no_completion_and_leave_no_block_behind(when):
    """A failing step is undone whether or not it had already written its KV; each request still gives its tokens."""
    failures = 0
    for seed in range(1000):
        rng = random.Random(seed)
        work = random_workload(rng)
        cache = ShadowCache(work.config.num_kvcache_blocks * work.config.kvcache_block_size)

        class Runner:
            def run(self, plan, rng=rng, cache=cache, work=work):
                if when == "before" and rng.random() < 0.2:
                    raise Failing
                cache.run(plan)
                if when == "after" and rng.random() < 0.2:
                    raise Failing
                return StepResult([work.token(row.seq.token_ids) for row in plan.rows])

        core = make_core(work.config, Runner())
        for ids, p in zip(work.prompts, work.params, strict=True):
            core.add(ids, p)
        done = {}
        while not core.is_finished():
            try:
                done |= {seq.seq_id: seq.completion_token_ids for seq in core.step()}
            except Failing:
                failures += 1
            check_pool(core.scheduler)
        assert done == {i: work.completion(i) for i in range(len(work.prompts))}, f"seed {seed}"
        assert all_free(core.scheduler)
    assert failures > 1000


# ---- the same, shrinking to a smallest failing run ------------------------------------------


@st.composite
def workloads(draw):
    bs = draw(st.integers(1, 8))
    ids = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=3 * bs)
    prompts = draw(st.lists(ids, min_size=1, max_size=5))
    if draw(st.booleans()):  # one prompt is a prefix of all others
        prompts = [prompts[0], *(prompts[0] + tail for tail in prompts[1:])]
    params = [SamplingParams(max_tokens=draw(st.integers(1, 2 * bs)), ignore_eos=draw(st.booleans())) for _ in prompts]
    longest = max(len(p) + s.max_tokens for p, s in zip(prompts, params, strict=True))
    max_model_len = max(max(map(len, prompts)) + 1, longest - draw(st.integers(0, 2)))
    config = EngineConfig(
        kvcache_block_size=bs,
        num_kvcache_blocks=-(-(min(longest, max_model_len) - 1) // bs) + draw(st.integers(0, 4)),
        max_num_batched_tokens=draw(st.integers(1, 4 * bs)),
        max_num_seqs=draw(st.integers(1, 4)),
        max_model_len=max_model_len,
        policy=draw(st.sampled_from(POLICIES)),
        enable_prefix_caching=draw(st.booleans()),
        eos=draw(st.lists(st.integers(0, VOCAB - 1), max_size=1)),
    )
    index = st.integers(0, len(prompts) - 1)
    return Workload(
        config,
        prompts,
        params,
        arrivals=[draw(st.integers(0, 8)) for _ in prompts],
        aborts=draw(st.dictionaries(st.integers(0, 20), index, max_size=2)),
        resets=draw(st.sets(st.integers(0, 12), max_size=1)),
        salt=draw(st.integers(0, 3)),
    )


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(workloads())
def test_every_promise_holds_for_generated_workloads(work):
    Driver(work).run()
