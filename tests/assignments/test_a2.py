"""Assignment 2, public tests: the block manager by hand, then in the seat of the real one."""

import pytest

from nanoinfer.course.grading import expect
from nanoinfer.course.kits.reference import run_against_reference
from nanoinfer.course.kits.requests import admitted, compute, limits, prompt, sequence, tokens

TABLE = "A table needs seq.num_blocks blocks; take them from the front of the free list and set ref_count."
TAIL_FIRST = "Give blocks back from the end of the table, to the end of the free list: prefixes then last longest."
COUNTED = "A block goes back to the free list when its last holder lets go, not before."
TWICE = "After deallocate the table is empty, so a second call finds nothing to give back."
BOUNDARY = "The newest token is in token_ids already: it needs a block when len(seq) is beyond the slots of the table."
LAST_BLOCK = "The block with the last token never counts as a hit: its logits are needed, so one token is computed."
WRITTEN = "A block can be found only after hash_blocks: before that its KV is not written."
CHAIN = "Chain the hashes: equal tokens at another place are not the same block, for attention saw other tokens before."
LATEST = "Under one hash the block that was registered last is found."
TAKEN = "A block that is taken for something new must not be found under its old hash."
REVIVED = "A hit that lies in the free list leaves it: it takes a free block, as a new one does."
KEEPS = "A freed block keeps its hash until it is taken for something else."
ATOMIC = "Check first, take then: an allocation that fails leaves the pool as it was."
FLAG = "Ask enable_prefix_caching where blocks are registered and where they are looked up."
RESET = "Forget every hash, leave every count: blocks in use stay with their sequences."
SAME = "Your class in the seat of the real one: the same requests give the same steps, tables and free list."


def free(manager):
    return list(manager.free_block_ids)


def counts(manager):
    return [block.ref_count for block in manager.blocks]


def found(manager, token_ids, blocks, hint=""):
    expect(f"can_allocate of {len(token_ids)} tokens", manager.can_allocate(sequence(token_ids, 99)), blocks, hint)


@pytest.mark.points(4, part="blocks", hint=TABLE)
def test_a_table_comes_from_the_front_of_the_free_list(impl):
    """Nine tokens in blocks of four need three blocks."""
    manager, seq = impl.BlockManager(8, 4), sequence(prompt(9))
    manager.allocate(seq, 0)
    expect("the table", seq.block_table, [0, 1, 2])
    expect("the free list", free(manager), [3, 4, 5, 6, 7])
    expect("the reference counts", counts(manager), [1, 1, 1, 0, 0, 0, 0, 0])
    expect("cached and computed tokens", (seq.num_cached_tokens, seq.num_computed_tokens), (0, 0))


@pytest.mark.points(4, part="blocks", hint=TAIL_FIRST)
def test_blocks_come_back_tail_first(impl):
    """The last block of a table is the first that is given up."""
    manager, seq = impl.BlockManager(8, 4), sequence(prompt(9))
    manager.allocate(seq, 0)
    manager.deallocate(seq)
    expect("the reference counts", counts(manager), [0] * 8, COUNTED)
    expect("the table", seq.block_table, [], TWICE)
    expect("the free list", free(manager), [3, 4, 5, 6, 7, 2, 1, 0])


@pytest.mark.points(3, part="blocks", hint=TWICE)
def test_freeing_twice_changes_nothing(impl):
    """A finished sequence is freed a second time."""
    manager, seq = impl.BlockManager(4, 4), sequence(prompt(9))
    manager.allocate(seq, 0)
    manager.deallocate(seq)
    manager.deallocate(seq)
    expect("the blocks in the free list, sorted", sorted(free(manager)), [0, 1, 2, 3])
    expect("the reference counts", counts(manager), [0] * 4)


@pytest.mark.points(4, part="blocks", hint=ATOMIC)
def test_a_table_that_does_not_fit_changes_nothing(impl):
    """Two of four blocks are in use, and somebody asks for three: a RuntimeError, and all is as it was."""
    manager, seq = impl.BlockManager(4, 4), sequence(prompt(9))
    manager.allocate(sequence(prompt(5, 1), 1), 0)
    with pytest.raises(RuntimeError):
        manager.allocate(seq, 0)
    expect("the free list", free(manager), [2, 3])
    expect("the reference counts", counts(manager), [1, 1, 0, 0])
    expect("the table", seq.block_table, [])


@pytest.mark.points(5, part="growing", hint=BOUNDARY)
def test_the_block_boundary(impl):
    """A prompt that fills its block exactly takes a new block for its first decode, and keeps it for four."""
    manager, seq = impl.BlockManager(8, 4), sequence(prompt(4))
    manager.allocate(seq, 0)
    lengths = []
    for token in range(5):
        seq.append_token(token)
        expect(f"can_append at {len(seq)} tokens", manager.can_append(seq), True)
        manager.may_append(seq)
        lengths.append(len(seq.block_table))
    expect("blocks at 5, 6, 7, 8 and 9 tokens", lengths, [2, 2, 2, 2, 3])


@pytest.mark.points(3, part="growing", hint="A free block is needed only where the newest token starts a block.")
def test_growing_with_an_empty_free_list(impl):
    """Four tokens fit into the only block, the fifth does not."""
    manager, seq = impl.BlockManager(1, 4), sequence(prompt(3))
    manager.allocate(seq, 0)
    seq.append_token(1)
    expect("can_append at 4 tokens", manager.can_append(seq), True)
    manager.may_append(seq)
    expect("the table", seq.block_table, [0])
    seq.append_token(1)
    expect("can_append at 5 tokens", manager.can_append(seq), False)


@pytest.mark.points(5, part="prefix cache", hint=LAST_BLOCK)
def test_the_same_prompt_again(impl):
    """Nine tokens: two blocks are found. Eight tokens: one is found, although both are there."""
    manager = impl.BlockManager(8, 4)
    admitted(manager, prompt(9))
    found(manager, prompt(9), 2)
    found(manager, prompt(8), 1)
    again = admitted(manager, prompt(8), 3)
    expect("the table", again.block_table, [0, 3])
    expect("num_cached_tokens", again.num_cached_tokens, 4)


@pytest.mark.points(4, part="prefix cache", hint=COUNTED)
def test_a_shared_block_stays_while_one_of_two_lets_go(impl):
    """Two sequences share two blocks; one of them ends."""
    manager = impl.BlockManager(8, 4)
    first, second = admitted(manager, prompt(9), 0), admitted(manager, prompt(9), 1)
    expect("the reference counts with both", counts(manager), [2, 2, 1, 1, 0, 0, 0, 0])
    manager.deallocate(first)
    expect("the reference counts after one has let go", counts(manager), [1, 1, 0, 1, 0, 0, 0, 0])
    expect("the free list", free(manager), [4, 5, 6, 7, 2])
    expect("the table of the other", second.block_table, [0, 1, 3])


@pytest.mark.points(5, part="prefix cache", hint=WRITTEN)
def test_twins_admitted_together(impl):
    """Two equal prompts get their tables before either is computed: they share nothing. The third one hits."""
    manager = impl.BlockManager(8, 4)
    twins = [sequence(prompt(9), 0), sequence(prompt(9), 1)]
    for seq in twins:
        manager.allocate(seq, manager.can_allocate(seq))
    expect("the tables of the two", [seq.block_table for seq in twins], [[0, 1, 2], [3, 4, 5]])
    for seq in twins:
        compute(manager, seq)
    third = admitted(manager, prompt(9), 2)
    expect("the table of the third", third.block_table, [3, 4, 6], LATEST)
    expect("the findable blocks", sorted(manager.hash_to_block_id.values()), [3, 4], LATEST)


@pytest.mark.points(4, part="prefix cache", hint=CHAIN)
def test_the_tail_of_a_prompt_is_not_its_head(impl):
    """After tokens 1 to 13, a prompt of tokens 5 to 13 finds nothing."""
    manager = impl.BlockManager(12, 4)
    admitted(manager, prompt(13))
    found(manager, prompt(13)[4:], 0)
    found(manager, prompt(13), 3)


@pytest.mark.points(4, part="prefix cache", hint=TAKEN)
def test_a_taken_block_is_not_found_any_more(impl):
    """Three blocks: P, then Q, then P again. Q has taken all blocks of P."""
    manager = impl.BlockManager(3, 4)
    for seq_id, tag in enumerate([0, 1]):
        manager.deallocate(admitted(manager, prompt(9, tag), seq_id))
    found(manager, prompt(9, 0), 0)
    expect("entries of hash_to_block_id", len(manager.hash_to_block_id), 2, KEEPS)
    stale = [block_id for key, block_id in manager.hash_to_block_id.items() if manager.blocks[block_id].hash != key]
    expect("blocks that are found under another hash than their own", stale, [])


@pytest.mark.points(5, part="prefix cache", hint=REVIVED)
def test_a_hit_in_the_free_list_takes_a_free_block(impl):
    """A prompt of four blocks again: three are found, but all four come from the free list, which must hold them."""
    manager = impl.BlockManager(4, 4)
    manager.deallocate(admitted(manager, prompt(13)))
    again = sequence(prompt(13), 1)
    found(manager, prompt(13), 3, KEEPS)
    expect("num_needed_blocks", manager.num_needed_blocks(again), 4)
    other = sequence(prompt(2, 5), 2)
    manager.allocate(other, 0)
    found(manager, prompt(13), -1)
    manager.deallocate(other)
    manager.allocate(again, manager.can_allocate(again))
    expect("the blocks in the table, sorted", sorted(again.block_table), [0, 1, 2, 3])
    expect("the free list", free(manager), [])
    expect("the reference counts", counts(manager), [1, 1, 1, 1])


@pytest.mark.points(3, part="prefix cache", hint=FLAG)
def test_no_prefix_cache(impl):
    """With enable_prefix_caching off from the start, nothing is registered and nothing is found."""
    manager = impl.BlockManager(8, 4)
    manager.enable_prefix_caching = False
    admitted(manager, prompt(9))
    expect("hash_to_block_id", manager.hash_to_block_id, {})
    found(manager, prompt(9), 0)


@pytest.mark.points(3, part="prefix cache", hint=RESET)
def test_a_reset_prefix_cache(impl):
    """One prompt is freed and one is in use: neither is found after a reset, and both keep what they hold."""
    manager = impl.BlockManager(8, 4)
    manager.deallocate(admitted(manager, prompt(9)))
    admitted(manager, prompt(9, 1), 1)
    before = free(manager), counts(manager)
    manager.reset_prefix_cache()
    found(manager, prompt(9), 0)
    found(manager, prompt(9, 1), 0)
    expect("hash_to_block_id", manager.hash_to_block_id, {})
    expect("the free list and the reference counts", (free(manager), counts(manager)), before)


@pytest.mark.points(4, part="in the engine", hint=SAME)
def test_an_interloper_costs_no_shared_prefix(impl):
    """A prompt of three blocks, another of two, the first again: it finds its two first blocks in the free list."""
    run_against_reference(
        {"block_manager_cls": impl.BlockManager},
        SAME,
        prompts=[prompt(9), prompt(5, 1), prompt(9)],
        sampling_params=tokens(1),
        arrivals=[0, 1, 2],
        **limits(4, 4),
    )
