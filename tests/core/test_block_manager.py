"""The block manager alone: conservation, hashes, collisions, errors that take nothing."""

import os
import subprocess
import sys

import pytest
from kit.helpers import check_pool, config, params, prompt, sequences, step_by_hand

from nanoinfer import BlockManager, Scheduler, Sequence, simulate


def sequence(ids, seq_id=0, bs=4):
    return Sequence(seq_id, ids, params(4), bs)


def fill(manager, seq):
    """What a step does with a whole prompt: reserve, compute, register."""
    cached = manager.can_allocate(seq)
    assert cached >= 0
    manager.allocate(seq, cached)
    seq.num_scheduled_tokens = len(seq) - seq.num_computed_tokens
    manager.hash_blocks(seq)
    seq.num_computed_tokens, seq.num_scheduled_tokens = len(seq), 0
    return cached


def free_and_used(manager):
    return len(manager.free_block_ids), sum(block.ref_count > 0 for block in manager.blocks)


def test_can_allocate_says_how_many_blocks_are_cached_or_minus_one():
    manager = BlockManager(3, 4)
    assert manager.can_allocate(sequence(prompt(12))) == 0
    assert manager.can_allocate(sequence(prompt(13))) == -1
    first = sequence(prompt(9))
    fill(manager, first)
    assert manager.can_allocate(sequence(prompt(9), 1)) == -1, "two hits, but no block for the rest"
    manager.deallocate(first)
    assert manager.can_allocate(sequence(prompt(9), 1)) == 2


def test_can_allocate_and_can_append_change_nothing():
    manager = BlockManager(4, 4)
    seq = sequence(prompt(9))
    fill(manager, seq)
    before = list(manager.free_block_ids), dict(manager.hash_to_block_id), [b.ref_count for b in manager.blocks]
    for _ in range(3):
        manager.can_allocate(sequence(prompt(9), 1))
        manager.num_needed_blocks(sequence(prompt(9), 1))
        manager.can_append(seq)
    after = list(manager.free_block_ids), dict(manager.hash_to_block_id), [b.ref_count for b in manager.blocks]
    assert after == before


def test_freeing_returns_the_tail_first():
    manager = BlockManager(5, 4)
    seq = sequence(prompt(10))
    fill(manager, seq)
    manager.deallocate(seq)
    assert list(manager.free_block_ids) == [3, 4, 2, 1, 0]


def test_freeing_twice_is_a_no_op():
    """B19: the free list has no duplicates and free + used = nb."""
    manager = BlockManager(4, 4)
    seq, other = sequence(prompt(9)), sequence(prompt(3, 1), 1)
    fill(manager, seq)
    fill(manager, other)
    for _ in range(3):
        manager.deallocate(seq)
        assert free_and_used(manager) == (3, 1)
    assert sorted(manager.free_block_ids) == [0, 1, 2]
    assert all(block.ref_count >= 0 for block in manager.blocks)


def test_freeing_a_finished_sequence_again_changes_nothing():
    """B19, through the scheduler."""
    scheduler = Scheduler(config(4, 4))
    (seq,) = sequences([9], 4, max_tokens=1)
    scheduler.add(seq)
    step_by_hand(scheduler)
    free = list(scheduler.block_manager.free_block_ids)
    scheduler.block_manager.deallocate(seq)
    assert list(scheduler.block_manager.free_block_ids) == free
    check_pool(scheduler)


def test_an_allocation_that_does_not_fit_takes_nothing():
    """B22: four blocks asked of three."""
    manager = BlockManager(3, 4)
    seq = sequence(prompt(13))
    with pytest.raises(RuntimeError, match=r"needs 4 free blocks of 3"):
        manager.allocate(seq, 0)
    assert free_and_used(manager) == (3, 0)
    assert seq.block_table == []
    assert list(manager.free_block_ids) == [0, 1, 2]


def test_an_allocation_that_counts_on_hits_that_are_not_there_takes_nothing():
    """B22: the caller's count is checked, not trusted."""
    manager = BlockManager(8, 4)
    seq = sequence(prompt(9))
    with pytest.raises(RuntimeError, match="cached blocks"):
        manager.allocate(seq, 2)
    assert (free_and_used(manager), seq.block_table) == ((8, 0), [])


def test_a_sequence_cannot_be_given_two_tables():
    manager = BlockManager(8, 4)
    seq = sequence(prompt(5))
    manager.allocate(seq, 0)
    with pytest.raises(RuntimeError, match="already holds 2"):
        manager.allocate(seq, 0)
    assert (free_and_used(manager), seq.block_table) == ((6, 2), [0, 1])


@pytest.mark.parametrize(("nb", "bs"), [(0, 4), (-1, 4), (4, 0), (4, -4)])
def test_a_pool_without_blocks_or_slots_is_refused(nb, bs):
    """B39."""
    with pytest.raises(ValueError, match="at least 1"):
        BlockManager(nb, bs)


# ---- lookups ------------------------------------------------------------------------------


def test_the_middle_of_a_cached_prompt_does_not_hit():
    """B11: hashes are chained."""
    manager = BlockManager(12, 4)
    fill(manager, sequence(prompt(13)))
    assert manager.can_allocate(sequence(prompt(13)[4:], 1)) == 0
    assert manager.can_allocate(sequence(prompt(13), 2)) == 3


def test_twins_are_hits_although_their_blocks_are_others():
    """B12: what was registered last is found, and its contents agree from the root on."""
    manager = BlockManager(12, 4)
    twins = [sequence(prompt(9), i) for i in (0, 1)]
    for seq in twins:
        manager.allocate(seq, 0)
    for seq in twins:
        seq.num_scheduled_tokens = 9
        manager.hash_blocks(seq)
    third = sequence(prompt(9), 2)
    assert fill(manager, third) == 2
    assert third.block_table == [3, 4, 6]
    assert [manager.blocks[i].ref_count for i in range(7)] == [1, 1, 1, 2, 2, 1, 1]


def test_a_chain_through_both_twins_is_still_one_prefix():
    """The parent found may be one twin's block while the child was written behind the other's."""
    manager = BlockManager(12, 4)
    short_one, long_one = sequence(prompt(5), 0), sequence(prompt(9), 1)
    manager.allocate(short_one, 0)
    manager.allocate(long_one, 0)
    for seq in (long_one, short_one):  # so block 0 of the short one is the findable one
        seq.num_scheduled_tokens = len(seq)
        manager.hash_blocks(seq)
    third = sequence(prompt(9), 2)
    assert fill(manager, third) == 2
    assert third.block_table[:2] == [short_one.block_table[0], long_one.block_table[1]]


def test_an_evicted_block_loses_its_hash():
    """B09: what is reused for new content can no longer be found."""
    manager = BlockManager(3, 4)
    first, second = sequence(prompt(9)), sequence(prompt(9, 1), 1)
    fill(manager, first)
    manager.deallocate(first)
    fill(manager, second)
    assert manager.can_allocate(sequence(prompt(5), 2)) == -1
    manager.deallocate(second)
    assert manager.can_allocate(sequence(prompt(9), 2)) == 0
    assert len(manager.hash_to_block_id) == 2
    assert all(manager.blocks[block].hash == key for key, block in manager.hash_to_block_id.items())


def test_an_evicted_twin_does_not_take_the_other_out_of_the_index():
    manager = BlockManager(6, 4)
    twins = [sequence(prompt(5), i) for i in (0, 1)]
    for seq in twins:
        manager.allocate(seq, 0)
    for seq in twins:
        seq.num_scheduled_tokens = 5
        manager.hash_blocks(seq)
    manager.deallocate(twins[0])  # its first block is block 0; block 2 is the one in the index
    fill(manager, sequence(prompt(13, 7), 5))  # takes blocks 4, 5, 1 and 0
    assert list(manager.hash_to_block_id.values()).count(2) == 1
    assert manager.can_allocate(sequence([*prompt(4), 9], 6)) == -1
    manager.deallocate(twins[1])
    assert manager.can_allocate(sequence(prompt(5), 6)) == 1


def test_the_order_of_eviction_is_first_in_first_out():
    """B16: the block freed longest ago goes first; a hit is taken out of the middle of the list."""
    manager = BlockManager(6, 4)
    first, second = sequence(prompt(9), 0), sequence(prompt(9, 1), 1)
    fill(manager, first)
    fill(manager, second)
    manager.deallocate(second)
    manager.deallocate(first)
    assert list(manager.free_block_ids) == [5, 4, 3, 2, 1, 0]
    again = sequence(prompt(9, 1), 2)
    assert fill(manager, again) == 2
    assert again.block_table == [3, 4, 5]
    assert list(manager.free_block_ids) == [2, 1, 0]


def test_use_is_between_nothing_and_everything_through_hits_and_frees():
    """B21: inserting into the cache and releasing commute with the count of used blocks."""
    manager = BlockManager(6, 4)
    for i in range(20):
        seqs = [sequence([*prompt(8), i, j], j) for j in range(3)]
        for seq in seqs:
            if manager.can_allocate(seq) >= 0:
                fill(manager, seq)
            free, used = free_and_used(manager)
            assert free + used == 6
        for seq in seqs:
            manager.deallocate(seq)
        assert free_and_used(manager) == (6, 0)


# ---- hashes -------------------------------------------------------------------------------

HASHES = """
import numpy as np
from nanoinfer import BlockManager
m = BlockManager(2, 4)
ids = [1, 2, 3, 4]
first = [m.compute_hash(ids), m.compute_hash(np.array(ids, np.int32)), m.compute_hash(np.array(ids, np.int64))]
print(first, [m.compute_hash(ids, h) for h in first])
"""


def test_hashes_are_equal_in_every_process_and_for_every_array_type():
    """B23: PYTHONHASHSEED and the type of the ids do not matter; 64 bits, unsigned."""
    outputs = set()
    for hash_seed in ("0", "4242"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", HASHES], env=env, capture_output=True, text=True, check=True)
        outputs.add(done.stdout)
    (text,) = outputs
    first, chained = (set(map(int, part.strip("[]\n ").split(","))) for part in text.split("] ["))
    assert len(first) == len(chained) == 1
    assert first != chained
    manager = BlockManager(2, 4)
    assert first == {manager.compute_hash([1, 2, 3, 4])}
    assert all(0 <= value < 2**64 for value in first | chained)


def test_hashes_depend_on_every_token_their_order_and_the_prefix():
    """B23, B11."""
    manager = BlockManager(2, 4)
    variants = [[1, 2, 3, 4], [1, 2, 4, 3], [0, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4, 0], [257, 2, 3, 4], [2**40, 2, 3, 4]]
    hashes = {manager.compute_hash(ids) for ids in variants}
    hashes |= {manager.compute_hash([1, 2, 3, 4], prefix) for prefix in (0, 1, 2**64 - 1)}
    assert len(hashes) == len(variants) + 3


class SameHash(BlockManager):
    """Everything collides."""

    def compute_hash(self, token_ids, prefix=-1):
        return 7


class NoChain(BlockManager):
    """Equal blocks collide wherever they stand."""

    def compute_hash(self, token_ids, prefix=-1):
        return super().compute_hash(token_ids)


class LengthOnly(BlockManager):
    """Blocks behind equal hashes collide whatever they hold, down to zero as a hash."""

    def compute_hash(self, token_ids, prefix=-1):
        return prefix + 1


COLLIDING = [SameHash, NoChain, LengthOnly]


@pytest.mark.parametrize("manager_cls", COLLIDING)
def test_a_collision_is_no_hit(manager_cls):
    """A match counts only if the contents agree from the root on."""
    x, y, z = [1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]
    manager = manager_cls(32, 4)
    fill(manager, sequence([*x, *y, *z, 0], 0))
    for i, other in enumerate(([*y, 0], [*y, *z, 0], [*z, *y, 0], [*y, *y, *z, 0], [*z, 0])):
        assert manager.can_allocate(sequence(other, i + 1)) == 0, other


def test_a_collision_deep_in_the_chain_is_no_hit():
    """Blocks 1 and 2 are equal, only the root differs: without a chained hash both would be found."""
    manager = NoChain(32, 4)
    root, other_root, tail = [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3, 4, 4, 4, 4]
    fill(manager, sequence([*root, *tail, 0], 0))
    fill(manager, sequence([*other_root, 9, 9, 9, 9, 0], 1))
    probe = sequence([*other_root, *tail, 0], 2)
    assert manager.can_allocate(probe) == 1
    assert fill(manager, probe) == 1
    assert manager.can_allocate(sequence([*other_root, *tail, 0], 3)) == 3
    assert manager.can_allocate(sequence([*root, *tail, 0], 4)) == 1, "the other chain now owns the hashes"


@pytest.mark.parametrize("manager_cls", COLLIDING)
def test_colliding_hashes_change_no_completion(manager_cls):
    shared = prompt(8)
    prompts = [[*shared, i] for i in range(3)] + [[*prompt(4, 1), *shared, i] for i in range(3)]
    settings = {"kvcache_block_size": 4, "num_kvcache_blocks": 8, "arrivals": [0, 1, 2, 3, 4, 9]}
    expected = simulate(prompts, params(6), **settings)
    got = simulate(prompts, params(6), block_manager_cls=manager_cls, **settings)
    assert [o["token_ids"] for o in got.outputs] == [o["token_ids"] for o in expected.outputs]
    assert got.header.block_manager_cls.endswith(manager_cls.__name__)
    for i in range(len(got.steps)):
        state = got.state(i)
        assert all(state.hashes[block] == key for key, block in state.hash_index.items())


def test_compute_hash_is_called_through_the_instance():
    calls = []

    class Counting(BlockManager):
        def compute_hash(self, token_ids, prefix=-1):
            calls.append((list(token_ids), prefix))
            return super().compute_hash(token_ids, prefix)

    fill(Counting(8, 4), sequence(prompt(9)))
    assert calls == [(prompt(9)[:4], -1), (prompt(9)[4:8], BlockManager(1, 4).compute_hash(prompt(9)[:4]))]
