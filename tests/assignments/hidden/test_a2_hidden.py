"""Assignment 2, hidden tests: random runs against the real block manager, collisions, and the corners."""

import numpy as np
import pytest

from nanoinfer import BlockManager
from nanoinfer.course.kits.reference import run_against_reference
from nanoinfer.course.kits.requests import admitted, compute, prompt, random_requests, sequence

RANDOM = "Compare your run with the real one: nanoinfer.compare(yours, theirs) shows the first step that differs."
COLLISION = "An equal hash is not enough: compare the tokens, and those of all blocks before."
ATOMIC = "Check first, take then: an allocation that fails leaves the pool as it was."
STABLE = "Python's hash() of a text or of None differs from process to process: hash the bytes of the numbers."


def in_random_run(manager_cls, seed, why, reference=BlockManager):
    work = random_requests(seed, spare_blocks=seed % 3)
    run_against_reference({"block_manager_cls": manager_cls}, why, reference, **work.arguments)


@pytest.mark.points(9, part="in the engine", hint=RANDOM, visibility="hidden")
@pytest.mark.parametrize("seed", [2, 6, 8, 12, 30, 36])
def test_random_runs_under_pressure(impl, seed):
    """Random requests with shared prefixes in a small pool: every step equals the real one."""
    in_random_run(impl.BlockManager, seed, "The real block manager is in the same state after each step.")


def colliding(cls):
    return type("Colliding", (cls,), {"compute_hash": lambda self, token_ids, prefix=-1: sum(token_ids) % 3})


@pytest.mark.points(7, part="prefix cache", hint=COLLISION, visibility="hidden")
@pytest.mark.parametrize("seed", [2, 8, 22])
def test_colliding_hashes(impl, seed):
    """With three hashes in all, nearly everything collides, and still only equal prefixes are shared."""
    why = "Only blocks with equal tokens from the first on may be shared."
    in_random_run(colliding(impl.BlockManager), seed, why, reference=colliding(BlockManager))


@pytest.mark.points(4, part="prefix cache", hint=COLLISION, visibility="hidden")
def test_equal_blocks_after_unequal_ones(impl):
    """A hash that forgets the blocks before: [A, B] and then [C, B] are cached; [A, B] finds only A."""
    flat = type("Flat", (impl.BlockManager,), {"compute_hash": lambda self, token_ids, prefix=-1: sum(token_ids)})
    manager = flat(12, 2)
    admitted(manager, [1, 2, 3, 4, 5], 0)
    admitted(manager, [7, 8, 3, 4, 5], 1)
    assert manager.can_allocate(sequence([1, 2, 3, 4, 6], 2, 2)) == 1
    assert manager.can_allocate(sequence([0, 3, 3, 4, 5], 3, 2)) == 0


@pytest.mark.points(4, part="prefix cache", hint=STABLE, visibility="hidden")
def test_hashes_are_equal_in_every_process(impl, monkeypatch):
    """A list and an array give one 64-bit number, chained to the block before, without hash() of a text or of None."""

    def numbers_only(value):
        items = value if isinstance(value, tuple) else (value,)
        assert all(isinstance(item, int) for item in items), f"hash({value!r}) differs from process to process"
        return hash(value)

    monkeypatch.setattr(impl, "hash", numbers_only, raising=False)
    manager = impl.BlockManager(2, 4)
    first, other = manager.compute_hash([1, 2, 3, 4]), manager.compute_hash([4, 3, 2, 1])
    assert isinstance(first, int)
    assert 0 <= first < 2**64
    assert manager.compute_hash(np.array([1, 2, 3, 4])) == first
    assert len({first, other, *(manager.compute_hash([1, 2, 3, 4], prefix) for prefix in (first, other))}) == 4


@pytest.mark.points(4, part="blocks", hint=ATOMIC, visibility="hidden")
def test_an_allocation_that_fails_takes_nothing(impl):
    """Four blocks, one of them in use, and somebody asks for four."""
    manager, seq = impl.BlockManager(4, 4), sequence(prompt(16))
    manager.allocate(sequence(prompt(3, 1), 1), 0)
    with pytest.raises(RuntimeError):
        manager.allocate(seq, 0)
    assert list(manager.free_block_ids) == [1, 2, 3]
    assert seq.block_table == []


@pytest.mark.points(4, part="prefix cache", hint="Ask enable_prefix_caching in both directions.", visibility="hidden")
def test_without_a_prefix_cache(impl):
    """With enable_prefix_caching off nothing is registered and nothing is found."""
    manager = impl.BlockManager(8, 4)
    manager.enable_prefix_caching = False
    admitted(manager, prompt(9))
    assert manager.hash_to_block_id == {}
    manager = impl.BlockManager(8, 4)
    admitted(manager, prompt(9))
    manager.enable_prefix_caching = False
    assert manager.can_allocate(sequence(prompt(9), 1)) == 0


@pytest.mark.points(4, part="prefix cache", hint="Forget every hash, leave every count.", visibility="hidden")
def test_resetting_the_prefix_cache(impl):
    """Blocks in use stay, but nothing is found any more, and no block carries a hash."""
    manager = impl.BlockManager(8, 4)
    admitted(manager, prompt(9))
    manager.reset_prefix_cache()
    assert manager.hash_to_block_id == {}
    assert [block.hash for block in manager.blocks] == [-1] * 8
    assert manager.can_allocate(sequence(prompt(9), 1)) == 0
    assert [block.ref_count for block in manager.blocks[:4]] == [1, 1, 1, 0]


@pytest.mark.points(4, part="prefix cache", hint="Only full blocks are registered.", visibility="hidden")
def test_a_block_is_registered_when_it_is_full(impl):
    """Chunks of three tokens: after each of them as many blocks can be found as are full."""
    manager, seq = impl.BlockManager(8, 4), sequence(prompt(11))
    manager.allocate(seq, 0)
    found = []
    for _ in range(3):
        seq.num_scheduled_tokens = 3
        manager.hash_blocks(seq)
        seq.num_computed_tokens, seq.num_scheduled_tokens = seq.num_computed_tokens + 3, 0
        found.append(len(manager.hash_to_block_id))
    compute(manager, seq)
    assert [*found, len(manager.hash_to_block_id)] == [0, 1, 2, 2]
