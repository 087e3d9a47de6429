"""Assignment 6, public tests: small pools worked out by hand, a load with a popular prefix, and what must not break."""

import pytest

from nanoinfer import compare, simulate
from nanoinfer.course.grading import expect, explain_failure
from nanoinfer.course.invariants import check_invariants
from nanoinfer.course.kits.a6_shared_prefix import computed, expect_found, one_by_one, popular, run_folded
from nanoinfer.course.kits.requests import prompt, random_requests

HEAT = "Count the hits of every block in _take_hit; _take_new takes the free block with the fewest."
EMPTY = "Look for a free block whose hash is NO_HASH first: nobody loses anything by it."
EQUALS = "Among equals take the block that was freed first; min() does so over the free list."
LEAF = "A hit counts for all blocks that were found, not for the last alone; then a prefix goes tail first."
LAST = "Never refuse a free block: if only popular ones are left, take the least popular."
OWN = "Keep the counts on the instance: two block managers must not count together."
FOLD = "Only the block that is taken leaves the free list; the others keep their order."
FORGET = "Call super()._take_new(seq): it forgets the old hash and tells the recorder."
ROOM = "Where nothing is evicted, nothing changes."


@pytest.mark.points(9, part="better", hint=HEAT)
@pytest.mark.parametrize("seed", range(3))
def test_a_popular_prefix_survives(impl, seed):
    """Bursts between the requests of one family: it computes at most a third of what it does by default."""
    load = popular(seed)
    theirs = computed(simulate(**load.work.arguments), load.families[0])
    trace = simulate(**load.work.arguments, block_manager_cls=impl.Evictor)
    mine = computed(trace, load.families[0])
    wanted = f"at most {theirs // 3} computed tokens for the requests with the prefix, got {mine}"
    assert mine <= theirs // 3, explain_failure(trace, -1, wanted, "its blocks were hit again and again")


@pytest.mark.points(6, part="better", hint=HEAT)
def test_hit_blocks_stay(impl):
    """A was asked for twice, X once: when room is needed X goes, though A was freed before it."""
    a, x = prompt(5), prompt(5, 1)
    trace = one_by_one(impl.Evictor, [a, a, x, prompt(13, 2), a, x], blocks=5)
    expect_found(trace, [0, 4, 0, 0, 4, 0], HEAT)


@pytest.mark.points(5, part="better", hint=EMPTY)
def test_nobody_misses_an_empty_block(impl):
    """Half-full blocks of A and B cannot be found: C takes these two, and both A and B are found again."""
    a, b, c = prompt(5), prompt(5, 1), prompt(7, 2)
    trace = one_by_one(impl.Evictor, [a, b, c, a, b], blocks=4)
    expect_found(trace, [0, 0, 0, 4, 4], EMPTY)


@pytest.mark.points(4, part="better", hint=EQUALS)
def test_equals_go_in_order(impl):
    """X, Y and Z came once each; one of their blocks is needed, and X was freed first."""
    x, y, z = prompt(4), prompt(4, 1), prompt(4, 2)
    asks = [[*ids, 9] for ids in (x, y, z)]
    trace = one_by_one(impl.Evictor, [*asks, prompt(5, 3), asks[1], asks[2], asks[0]], blocks=4)
    expect_found(trace, [0, 0, 0, 0, 4, 4, 0], EQUALS)


@pytest.mark.points(6, part="better", hint=LEAF)
def test_a_prefix_goes_tail_first(impl):
    """A popular prefix of three blocks must give up one: the two before it are still found."""
    a = prompt(13)
    trace = one_by_one(impl.Evictor, [a, a, a, prompt(12, 1), a], blocks=5)
    expect_found(trace, [0, 12, 12, 0, 8], LEAF)


@pytest.mark.points(5, part="promises", hint=LAST)
def test_the_whole_pool_can_be_taken(impl):
    """Every free block is popular, and a prompt needs them all: it gets them."""
    a = prompt(16)
    trace = one_by_one(impl.Evictor, [a, a, a, prompt(16, 1), a], blocks=4)
    expect("the table of the second prompt, sorted", sorted(trace.steps[3].rows[0].block_table), [0, 1, 2, 3])
    expect_found(trace, [0, 12, 12, 0, 0], LAST)


@pytest.mark.points(5, part="promises", hint=FOLD)
def test_the_trace_folds(impl):
    """After every step of a load, the events give the live free list, reference counts, hashes and index."""
    run_folded(impl.Evictor, FOLD, **popular(7, rounds=5).work.arguments)


@pytest.mark.points(5, part="promises", hint=FORGET)
def test_old_contents_are_forgotten(impl):
    """Every hash in the index is that of the block it names, and every run keeps the invariants of the pool."""
    for seed in range(10):
        trace = run_folded(impl.Evictor, FORGET, **random_requests(seed, spare_blocks=seed % 3).arguments)
        check_invariants(trace)
        for step in trace.steps:
            state = trace.state(step.index)
            stale = [block for key, block in state.hash_index.items() if state.hashes[block] != key]
            assert not stale, explain_failure(trace, step.index, f"blocks {stale} under their own hash", FORGET)


@pytest.mark.points(5, part="promises", hint=FORGET)
def test_the_answers_are_the_same(impl):
    """An evictor decides what is computed again, never what comes out."""
    for work in [popular(9).work, *(random_requests(seed, spare_blocks=0) for seed in range(10))]:
        mine = simulate(**work.arguments, block_manager_cls=impl.Evictor)
        theirs = simulate(**work.arguments)
        tokens_of = [[output["token_ids"] for output in run.outputs] for run in (mine, theirs)]
        expect("the token ids of all requests", *tokens_of)
        check_invariants(mine)


@pytest.mark.points(5, part="promises", hint=ROOM)
def test_a_roomy_pool_changes_nothing(impl):
    """With room for all requests at once, every decision is the default's."""
    for seed in range(10):
        work = random_requests(seed)
        mine = simulate(**work.arguments, block_manager_cls=impl.Evictor)
        at = compare(mine, simulate(**work.arguments)).first_difference
        assert at is None, explain_failure(mine, at, "what the default does", ROOM)


@pytest.mark.points(5, part="promises", hint=OWN)
def test_two_managers_count_apart(impl):
    """While one pool rests between two requests, another one is used: that makes nothing popular in the first."""
    a, x = prompt(5), prompt(5, 1)

    def meanwhile(trace, i):
        if trace.steps[i].columns.seq_id == [2]:
            one_by_one(impl.Evictor, [prompt(17, 5)] * 3, blocks=5)

    trace = one_by_one(impl.Evictor, [a, a, x, prompt(13, 2), a, x], blocks=5, on_step=meanwhile)
    expect_found(trace, [0, 4, 0, 0, 4, 0], OWN)
