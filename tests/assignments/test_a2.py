"""Assignment 2, public tests: the block manager by hand, then in the seat of the real one."""

import pytest

from nanoinfer.course.grading.against import run_against_reference
from nanoinfer.course.grading.cases import admitted, compute, limits, prompt, sequence, tokens

TABLE = "A table needs seq.num_blocks blocks; take them from the front of the free list and set ref_count."
TAIL_FIRST = "Give blocks back from the end of the table, to the end of the free list: prefixes then last longest."
COUNTED = "A block goes back to the free list when its last holder lets go, not before."
TWICE = "After deallocate the table is empty, so a second call finds nothing to give back."
BOUNDARY = "The newest token is in token_ids already: it needs a block when len(seq) is beyond the slots of the table."
LAST_BLOCK = "The block with the last token never counts as a hit: its logits are needed, so one token is computed."
WRITTEN = "A block can be found only after hash_blocks: before that its KV is not written."
CHAIN = "Chain the hashes: equal tokens at another place are not the same block, for attention saw other tokens before."
TAKEN = "A block that is taken for something new must not be found under its old hash."
REVIVED = "A hit that lies in the free list leaves it: it takes a free block, as a new one does."
KEEPS = "A freed block keeps its hash until it is taken for something else."
FULL = "Only full blocks are registered."


def free(manager):
    return list(manager.free_block_ids)


def counts(manager):
    return [block.ref_count for block in manager.blocks]


@pytest.mark.points(5, part="blocks", hint=TABLE)
def test_a_table_comes_from_the_front_of_the_free_list(impl):
    """Nine tokens in blocks of four need three blocks."""
    manager, seq = impl.BlockManager(8, 4), sequence(prompt(9))
    manager.allocate(seq, 0)
    assert seq.block_table == [0, 1, 2]
    assert free(manager) == [3, 4, 5, 6, 7]
    assert counts(manager) == [1, 1, 1, 0, 0, 0, 0, 0]
    assert (seq.num_cached_tokens, seq.num_computed_tokens) == (0, 0)


@pytest.mark.points(5, part="blocks", hint=TAIL_FIRST)
def test_blocks_come_back_tail_first(impl):
    """The last block of a table is the first that is given up."""
    manager, seq = impl.BlockManager(8, 4), sequence(prompt(9))
    manager.allocate(seq, 0)
    manager.deallocate(seq)
    assert free(manager) == [3, 4, 5, 6, 7, 2, 1, 0]
    assert counts(manager) == [0] * 8
    assert seq.block_table == []


@pytest.mark.points(4, part="blocks", hint=TWICE)
def test_freeing_twice_changes_nothing(impl):
    """A finished sequence is freed a second time."""
    manager, seq = impl.BlockManager(4, 4), sequence(prompt(9))
    manager.allocate(seq, 0)
    manager.deallocate(seq)
    manager.deallocate(seq)
    assert free(manager) == [3, 2, 1, 0]
    assert counts(manager) == [0] * 4


@pytest.mark.points(5, part="blocks", hint=COUNTED)
def test_a_shared_block_stays_while_one_of_two_lets_go(impl):
    """Two sequences share two blocks; one of them ends."""
    manager = impl.BlockManager(8, 4)
    first, second = admitted(manager, prompt(9), 0), admitted(manager, prompt(9), 1)
    assert counts(manager) == [2, 2, 1, 1, 0, 0, 0, 0]
    manager.deallocate(first)
    assert counts(manager) == [1, 1, 0, 1, 0, 0, 0, 0]
    assert free(manager) == [4, 5, 6, 7, 2]
    assert second.block_table == [0, 1, 3]


@pytest.mark.points(6, part="growing", hint=BOUNDARY)
def test_the_block_boundary(impl):
    """A prompt that fills its block exactly takes a new block for its first decode, and keeps it for four."""
    manager, seq = impl.BlockManager(8, 4), sequence(prompt(4))
    manager.allocate(seq, 0)
    lengths = []
    for token in range(5):
        seq.append_token(token)
        assert manager.can_append(seq)
        manager.may_append(seq)
        lengths.append(len(seq.block_table))
    assert lengths == [2, 2, 2, 2, 3]


@pytest.mark.points(4, part="growing", hint="A free block is needed only where the newest token starts a block.")
def test_growing_with_an_empty_free_list(impl):
    """Four tokens fit into the only block, the fifth does not."""
    manager, seq = impl.BlockManager(1, 4), sequence(prompt(3))
    manager.allocate(seq, 0)
    seq.append_token(1)
    assert manager.can_append(seq)
    manager.may_append(seq)
    assert seq.block_table == [0]
    seq.append_token(1)
    assert not manager.can_append(seq)


@pytest.mark.points(6, part="prefix cache", hint=LAST_BLOCK)
def test_the_same_prompt_again(impl):
    """Nine tokens: two blocks are found. Eight tokens: one is found, although both are there."""
    manager = impl.BlockManager(8, 4)
    admitted(manager, prompt(9))
    assert manager.can_allocate(sequence(prompt(9), 1)) == 2
    assert manager.can_allocate(sequence(prompt(8), 2)) == 1
    again = admitted(manager, prompt(8), 3)
    assert again.block_table == [0, 3]
    assert again.num_cached_tokens == 4


@pytest.mark.points(5, part="prefix cache", hint=WRITTEN)
def test_twins_admitted_together(impl):
    """Two equal prompts get their tables before either is computed: they share nothing. The third one hits."""
    manager = impl.BlockManager(8, 4)
    twins = [sequence(prompt(9), 0), sequence(prompt(9), 1)]
    for seq in twins:
        manager.allocate(seq, manager.can_allocate(seq))
    assert [seq.block_table for seq in twins] == [[0, 1, 2], [3, 4, 5]]
    for seq in twins:
        compute(manager, seq)
    third = admitted(manager, prompt(9), 2)
    assert third.block_table == [3, 4, 6]
    assert len(manager.hash_to_block_id) == 2


@pytest.mark.points(5, part="prefix cache", hint=CHAIN)
def test_the_tail_of_a_prompt_is_not_its_head(impl):
    """After tokens 1 to 13, a prompt of tokens 5 to 13 finds nothing."""
    manager = impl.BlockManager(12, 4)
    admitted(manager, prompt(13))
    assert manager.can_allocate(sequence(prompt(13)[4:], 1)) == 0
    assert manager.can_allocate(sequence(prompt(13), 2)) == 3


@pytest.mark.points(5, part="prefix cache", hint=TAKEN)
def test_a_taken_block_is_not_found_any_more(impl):
    """Three blocks: P, then Q, then P again. Q has taken all blocks of P."""
    manager = impl.BlockManager(3, 4)
    for seq_id, tag in enumerate([0, 1]):
        manager.deallocate(admitted(manager, prompt(9, tag), seq_id))
    assert manager.can_allocate(sequence(prompt(9, 0), 2)) == 0
    assert len(manager.hash_to_block_id) == 2
    assert all(manager.blocks[block_id].hash == key for key, block_id in manager.hash_to_block_id.items())


@pytest.mark.points(5, part="prefix cache", hint=REVIVED)
def test_a_hit_in_the_free_list_takes_a_free_block(impl):
    """A prompt of four blocks again: three are found, but all four come from the free list, which must hold them."""
    manager = impl.BlockManager(4, 4)
    manager.deallocate(admitted(manager, prompt(13)))
    again = sequence(prompt(13), 1)
    assert manager.num_needed_blocks(again) == 4
    assert manager.can_allocate(again) == 3
    manager.allocate(sequence(prompt(2, 5), 2), 0)
    assert manager.can_allocate(again) == -1
    assert (free(manager), again.block_table) == ([2, 1, 0], [])


@pytest.mark.points(5, part="in the engine", hint=KEEPS)
def test_an_interloper_costs_no_shared_prefix(impl):
    """A prompt of three blocks, another of two, the first again: it finds its two first blocks in the free list."""
    run_against_reference(
        {"block_manager_cls": impl.BlockManager},
        KEEPS,
        prompts=[prompt(9), prompt(5, 1), prompt(9)],
        sampling_params=tokens(1),
        arrivals=[0, 1, 2],
        **limits(4, 4),
    )
