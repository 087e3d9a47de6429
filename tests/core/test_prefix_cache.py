"""Who shares blocks with whom, when, and what a hit leaves to compute."""

import pytest
from kit.helpers import (
    POLICIES,
    FunctionRunner,
    all_free,
    check_pool,
    config,
    limits,
    make_core,
    params,
    prompt,
    rows,
    run_all,
    short,
    step_by_hand,
)

from nanoinfer import Scheduler, Sequence, simulate


def one_after_another(prompts, max_tokens=1, **settings):
    """Each prompt arrives when the one before has finished."""
    arrivals = [i * 100 for i in range(len(prompts))]
    return simulate(prompts, params(max_tokens), arrivals=arrivals, **settings)


def test_a_prompt_that_is_cached_as_a_whole_still_computes_its_last_block():
    """B08: 4+4, never 8+0."""
    trace = one_after_another([prompt(8), prompt(8)], **limits(4, 8))
    assert [(r.num_computed, r.num_cached, r.num_scheduled) for s in trace.steps for r in s.rows] == [
        (0, 0, 8),
        (4, 4, 4),
    ]


@pytest.mark.parametrize("n", range(1, 14))
def test_a_repeated_prompt_always_has_something_to_compute(n):
    """B08, for every length: the block of the last token is never a hit."""
    _, second = one_after_another([prompt(n), prompt(n)], **limits(4, 8)).steps
    row = second.rows[0]
    assert row.num_scheduled >= 1
    assert row.num_computed == (n - 1) // 4 * 4
    assert row.num_computed + row.num_scheduled == n


def test_registration_does_not_drift_after_a_full_hit():
    """B08: after the last block was recomputed into a new block, a third run still hits."""
    trace = one_after_another([prompt(8)] * 3 + [[*prompt(8), 7, 7]], **limits(4, 8))
    assert [step.rows[0].num_computed for step in trace.steps] == [0, 4, 4, 8]


def test_a_reused_block_is_no_longer_reachable_through_its_old_hash():
    """B09: P, Q, P in a pool that holds one of them."""
    core = make_core(config(4, 3))
    core.start_trace()
    for tag in (0, 1, 0):
        core.add(prompt(9, tag), params(1))
        run_all(core)
    assert [(r.num_computed, r.num_scheduled) for s in core.trace.steps for r in s.rows] == [(0, 9)] * 3
    manager = core.scheduler.block_manager
    assert len(manager.hash_to_block_id) == 2
    assert all(manager.blocks[block].hash == key for key, block in manager.hash_to_block_id.items())


def test_the_middle_of_a_cached_prompt_is_no_prefix():
    """B11: [B, C] does not hit after [A, B, C]: a block is found only behind its own predecessors."""
    ids = list(range(1, 14))
    trace = one_after_another([ids, ids[4:]], **limits(4, 12))
    assert [(r.num_computed, r.num_scheduled) for r in trace.steps[1].rows] == [(0, 9)]


def test_equal_prompts_admitted_in_one_step_are_twins_and_a_third_one_hits():
    """B12 and B13: nothing is findable until the forward pass that wrote it is over."""
    core = make_core(config(4, 8))
    core.start_trace()
    core.add(prompt(9), params(2))
    core.add(prompt(9), params(2))
    core.step()
    core.add(prompt(9), params(2))
    core.step()
    first, second = core.trace.steps
    assert rows(first) == [(0, 0, 9, [0, 1, 2]), (1, 0, 9, [3, 4, 5])]
    assert first.num_batched_tokens == 18
    assert short(second) == "2:8+1@[3, 4, 6]"
    index = core.trace.state(0).hash_index
    assert sorted(index.values()) == [3, 4], "two entries, and the twin registered last is the one found"
    run_all(core)
    check_pool(core.scheduler)


def test_a_third_equal_prompt_hits_after_both_twins_have_finished():
    """B12, when the third comes later: the same blocks, now from the free list."""
    trace = simulate([prompt(9)] * 3, params(2), arrivals=[0, 0, 50], **limits(4, 8))
    assert short(trace.steps[-2]) == "2:8+1@[3, 4, 6]"
    assert [e.kind for e in trace.events if e.seq_id == 2 and e.block_id is not None][:3] == [
        "reuse",
        "reuse",
        "allocate",
    ]


def test_blocks_are_registered_by_postprocess_and_not_by_schedule():
    """B13: between the two, the index is empty."""
    scheduler = Scheduler(config(4, 8))
    scheduler.add(Sequence(0, prompt(9), params(2), 4))
    plan = scheduler.schedule()
    assert scheduler.block_manager.hash_to_block_id == {}
    scheduler.postprocess(plan, [5])
    assert sorted(scheduler.block_manager.hash_to_block_id.values()) == [0, 1]


def test_a_chunk_registers_the_blocks_it_has_filled():
    """B13: after each chunk exactly the whole blocks so far can be found."""
    trace = simulate([prompt(10)], params(1), **limits(4, 3, B=3))
    assert [len(trace.state(i).hash_index) for i in range(4)] == [0, 1, 2, 2]


def test_leaf_first_freeing_lets_a_shared_prefix_survive_an_interloper():
    """B16: A(9), B(5), A(9) in four blocks; freeing in table order would give no hit."""
    trace = one_after_another([prompt(9), prompt(5, 1), prompt(9)], **limits(4, 4))
    assert [step.free_blocks for step in trace.steps] == [[3, 2, 1, 0], [1, 0, 2, 3], [3, 2, 1, 0]]
    assert short(trace.steps[2]) == "2:8+1@[0, 1, 2]"


@pytest.mark.parametrize("policy", POLICIES)
def test_use_of_the_pool_stays_between_nothing_and_everything(policy):
    """B21: used / nb in [0, 1] at every step, 0 when idle."""
    shared = prompt(8)
    trace = simulate(
        [[*shared, i] for i in range(6)], params(6), arrivals=[0, 1, 1, 2, 5, 9], policy=policy, **limits(4, 6)
    )
    for step in trace.steps:
        used = sum(count > 0 for count in trace.state(step.index).ref_counts)
        assert used + len(step.free_blocks) == 6
        assert 0 <= used <= 6
    assert sum(trace.state(-1).ref_counts) == 0
    use = trace.metrics()["kv_block_use"]
    assert 0 <= use["mean"] <= use["max"] <= 1


def test_a_finishing_twin_leaves_the_blocks_of_the_other_alone():
    """B25: twins are never merged, so nobody's table points at a block that was freed."""
    trace = simulate([prompt(9)] * 2, [params(2), params(6)], **limits(4, 8))
    ends = next(e.step for e in trace.events if e.kind == "finish" and e.seq_id == 0)
    state = trace.state(ends)
    assert state.block_tables[1] == [3, 4, 5]
    assert not set(state.block_tables[1]) & set(state.free_blocks)
    assert tokens_of(trace, 1)[:2] == tokens_of(trace, 0)


def tokens_of(trace, i):
    return trace.outputs[i]["token_ids"]


def test_a_block_shared_by_two_is_freed_by_the_last():
    """B25: reference counts, not ownership."""
    shared = prompt(8)
    trace = simulate([[*shared, 1], [*shared, 2]], [params(3), params(6)], arrivals=[0, 1], **limits(4, 8))
    ends = next(e.step for e in trace.events if e.kind == "finish" and e.seq_id == 0)
    assert trace.state(ends - 1).ref_counts[:2] == [2, 2]
    assert trace.state(ends).ref_counts[:2] == [1, 1]
    assert not {0, 1} & set(trace.steps[ends].free_blocks)
    assert {0, 1} <= set(trace.steps[-1].free_blocks)


def test_partial_blocks_are_never_registered():
    """B27: at every step each findable block is whole and all its tokens have their KV."""
    core = make_core(config(4, 16), FunctionRunner(lambda ids: len(ids)))
    core.add(prompt(6), params(9))
    core.add([*prompt(4), 50, 51, 52], params(5))
    while not core.is_finished():
        core.step()
        manager = core.scheduler.block_manager
        whole = {}
        for seq in core.scheduler.running:
            for i in range(seq.num_computed_tokens // 4):
                whole[seq.block_table[i]] = seq.token_ids[4 * i : 4 * i + 4]
        for block in manager.hash_to_block_id.values():
            if manager.blocks[block].ref_count:
                assert manager.blocks[block].token_ids == whole[block]


def test_a_block_that_decode_fills_is_registered_with_its_generated_tokens():
    """B27: prompt and completion chain on; a prompt that repeats both hits both."""
    core = make_core(config(4, 16), FunctionRunner(lambda ids: 60 + len(ids)))
    core.start_trace()
    core.add(prompt(3), params(7))
    (first,) = run_all(core)
    core.add([*first.token_ids, 1, 2], params(1))
    run_all(core)
    # Ten tokens exist, the last of them without KV: two whole blocks.
    assert [(r.num_computed, r.num_scheduled) for r in core.trace.steps[-1].rows] == [(8, 4)]


def test_a_hit_in_the_free_list_consumes_a_free_block():
    """The needed count holds revived blocks too: nine tokens need three blocks although two are cached."""
    core = make_core(config(4, 4))
    core.add(prompt(9), params(1))
    run_all(core)
    manager = core.scheduler.block_manager
    seq = Sequence(9, prompt(9), params(1), 4)
    assert manager.can_allocate(seq) == 2
    assert manager.num_needed_blocks(seq) == 3
    core.add(prompt(5, 1), params(8))
    core.step()  # takes two of the four blocks
    assert manager.can_allocate(seq) == -1
    core.start_trace()
    core.add(prompt(9), params(1))
    core.step()
    assert str(core.trace.steps[0].stop) == "NO_BLOCKS needed=3 free=2"


def test_prefix_caching_can_be_switched_off():
    core = make_core(config(4, 8, enable_prefix_caching=False))
    core.start_trace()
    for _ in range(2):
        core.add(prompt(9), params(1))
        run_all(core)
    assert [(r.num_computed, r.num_scheduled) for s in core.trace.steps for r in s.rows] == [(0, 9), (0, 9)]
    assert core.scheduler.block_manager.hash_to_block_id == {}
    assert not [e for e in core.trace.events if e.kind in ("register_hash", "evict_hash", "share", "reuse")]


def test_reset_forgets_every_prefix_and_leaves_running_sequences_alone():
    core = make_core(config(4, 8))
    core.add(prompt(9), params(9))
    core.step()
    table = list(core.scheduler.running[0].block_table)
    core.scheduler.block_manager.reset_prefix_cache()
    check_pool(core.scheduler)
    assert core.scheduler.block_manager.hash_to_block_id == {}
    assert core.scheduler.running[0].block_table == table
    core.add(prompt(9), params(1))
    core.start_trace()
    core.step()
    assert short(core.trace.steps[0]) == "1:0+9@[3, 4, 5]"
    run_all(core)
    assert all_free(core.scheduler)


def test_hits_of_a_preempted_sequence_are_counted_in_its_row():
    """Its blocks keep their hashes in the free list until somebody takes them."""
    scheduler = Scheduler(config(4, 5))
    for i in (0, 1):
        scheduler.add(Sequence(i, prompt(8, i), params(4), 4))
    plans = [step_by_hand(scheduler)]
    while not scheduler.is_finished():
        plans.append(step_by_hand(scheduler))
    back = next(plan for plan in plans[1:] if plan.phase == "prefill")
    (row,) = back.rows
    assert (row.seq_id, row.num_cached, row.num_computed, row.num_scheduled) == (1, 8, 8, 1)
