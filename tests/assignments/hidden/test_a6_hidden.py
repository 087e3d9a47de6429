"""Assignment 6, hidden tests: other loads, popularity that moves on, and promises under pressure."""

import pytest

from nanoinfer import compare, simulate
from nanoinfer.core.policies import POLICIES
from nanoinfer.course.grading import explain_failure
from nanoinfer.course.invariants import check_invariants
from nanoinfer.course.kits.a6_shared_prefix import computed, expect_found, moving, one_by_one, popular, run_folded
from nanoinfer.course.kits.requests import limits, prompt, random_requests, tokens

HEAT = "Count the hits of every block in _take_hit; _take_new takes the free block with the fewest."
AGE = "Let old hits count less, for instance by halving all counts whenever a block is taken."
NEW = "Set the count of a block to 0 when it gets new content."
FOLD = "Only the block that is taken leaves the free list; the others keep their order."
OFF = "Without hashes all free blocks are equal: take the one that was freed first."
HELD = "Call super()._take_hit(seq, block): it takes the block out of the free list and counts who holds it."
SHARED = "A hit on a block in use counts as well."


@pytest.mark.points(8, part="better", hint=HEAT, visibility="hidden")
@pytest.mark.parametrize("seed", range(10, 14))
def test_other_popular_prefixes(impl, seed):
    """Longer loads of the same kind, under one policy and another."""
    load, policy = popular(seed, rounds=20), list(POLICIES)[seed % len(POLICIES)]
    theirs = computed(simulate(**load.work.arguments, policy=policy), load.families[0])
    trace = simulate(**load.work.arguments, policy=policy, block_manager_cls=impl.Evictor)
    mine = computed(trace, load.families[0])
    assert mine <= theirs // 3, explain_failure(trace, -1, f"at most {theirs // 3} computed tokens, got {mine}", HEAT)


@pytest.mark.points(8, part="better", hint=AGE, visibility="hidden")
@pytest.mark.parametrize("seed", range(4))
def test_popularity_moves_on(impl, seed):
    """The family of the second half computes at most half of what it does by default."""
    load = moving(seed)
    theirs = computed(simulate(**load.work.arguments), load.families[1])
    trace = simulate(**load.work.arguments, block_manager_cls=impl.Evictor)
    mine = computed(trace, load.families[1])
    assert mine <= theirs // 2, explain_failure(trace, -1, f"at most {theirs // 2} computed tokens, got {mine}", AGE)


@pytest.mark.points(5, part="better", hint=NEW, visibility="hidden")
def test_new_content_is_new(impl):
    """A was popular; then W took its block, for its own last one. W was never hit, so that block goes first again."""
    a, w = prompt(5), prompt(16, 2)
    trace = one_by_one(impl.Evictor, [*[a] * 9, w, prompt(4, 3), w], blocks=4)
    expect_found(trace, [0, *[4] * 8, 0, 0, 12], NEW)


@pytest.mark.points(5, part="better", hint=SHARED, visibility="hidden")
def test_a_hit_on_a_used_block_counts(impl):
    """The second request shares A's block while the first still runs; afterwards that block is kept."""
    a, x = prompt(5), prompt(5, 1)
    params = [tokens(n) for n in (3, 1, 1, 1, 1)]
    work = {"prompts": [a, a, x, prompt(13, 2), a], "sampling_params": params, "arrivals": [0, 1, 20, 30, 40]}
    trace = simulate(**work, block_manager_cls=impl.Evictor, **limits(4, 5))
    expect_found(trace, [0, 4, 0, 0, 4], SHARED)


@pytest.mark.points(6, part="promises", hint=FOLD, visibility="hidden")
@pytest.mark.parametrize("policy", POLICIES)
def test_the_fold_under_pressure(impl, policy):
    """Random runs with preemptions: live state and events agree after every step, and all invariants hold."""
    for seed in range(20, 40):
        work = random_requests(seed, spare_blocks=seed % 2)
        trace = run_folded(impl.Evictor, FOLD, **work.arguments, policy=policy)
        check_invariants(trace)
        theirs = simulate(**work.arguments, policy=policy)
        assert [o["token_ids"] for o in trace.outputs] == [o["token_ids"] for o in theirs.outputs]


@pytest.mark.points(4, part="promises", hint=OFF, visibility="hidden")
def test_without_a_prefix_cache(impl):
    """Nothing can be found, so every decision is the default's."""
    for seed in range(10):
        work = random_requests(seed, spare_blocks=seed % 3)
        more = work.arguments | {"enable_prefix_caching": False}
        trace = simulate(**more, block_manager_cls=impl.Evictor)
        at = compare(trace, simulate(**more)).first_difference
        assert at is None, explain_failure(trace, at, "what the default does", OFF)


@pytest.mark.points(4, part="promises", hint=HELD, visibility="hidden")
def test_idle_pool(impl):
    """After a load nothing is held, every block is free once, and the index names free blocks only."""
    for seed in range(5):
        trace = simulate(**popular(seed, rounds=4).work.arguments, block_manager_cls=impl.Evictor)
        state = trace.state(-1)
        assert sorted(state.free_blocks) == list(range(24))
        assert not state.block_tables
        assert {state.hashes[block] for block in state.hash_index.values()} == set(state.hash_index)
