"""Assignment 8, public tests: slots by hand, small caches, and the kernel on the same caches."""

import pytest
import torch

from nanoinfer.course.grading import expect
from nanoinfer.course.kits.a8_paged import DEVICE, expect_attention, in_triton, paged

SLOT = "Token p lies in block p // block_size of the table, at place p % block_size of that block."
PADDING = "Leave out the tokens whose slot is -1: in PyTorch, index -1 is the last slot."
PLACE = "cache[slots] = new writes in place; a name on the left of = only makes a new name."
GATHER = "Gather keys and values by their slots first; then it is plain attention."
SCALE = "Multiply the scores by scale before the softmax."
GROUPS = "Query head h reads kv head h // (heads // kv_heads): neighbours share one."
TAIL = "Read the tokens of the context and no others: the rest of the last block holds anything."
OFFSET = "A program's query and output begin at (row * heads + head) * head_dim."
MASKED = "Masked loads keep junk out; their scores must be -inf, or they take part in the softmax."
ONLINE = "When the maximum grows, shrink both the sum of weights and the output by exp(old - new)."


def tensor(values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device=DEVICE)


@pytest.mark.points(4, part="slots", hint=SLOT)
def test_slots_of_three_blocks(impl):
    """Nine tokens in blocks 7, 2 and 5 of four slots."""
    got = impl.token_slots(tensor([7, 2, 5]), 9, 4)
    expect("the slots", got.tolist(), [28, 29, 30, 31, 8, 9, 10, 11, 20])
    assert got.dtype == torch.int64, f"slots are int64, got {got.dtype}"


@pytest.mark.points(4, part="slots", hint=SLOT)
def test_slots_at_a_boundary(impl):
    """Eight tokens fill two blocks of four; a third entry of the table is not the sequence's."""
    expect("eight slots", impl.token_slots(tensor([3, 0, -9]), 8, 4).tolist(), [12, 13, 14, 15, 0, 1, 2, 3])
    expect("one slot in a block of one", impl.token_slots(tensor([6]), 1, 1).tolist(), [6])


@pytest.mark.points(4, part="store", hint=PLACE)
def test_store_in_place(impl):
    """Two tokens go to slots 5 and 1; every other slot stays as it was."""
    key, value = torch.randn(2, 2, 8, device=DEVICE), torch.randn(2, 2, 8, device=DEVICE)
    caches = [torch.zeros(6, 2, 8, device=DEVICE) for _ in range(2)]
    impl.store_kv(key, value, *caches, tensor([5, 1], torch.int64))
    for new, cache in zip((key, value), caches, strict=True):
        assert torch.equal(cache[[5, 1]], new), "slots 5 and 1 must hold the new tokens"
        assert not cache[[0, 2, 3, 4]].any(), "no other slot may change"


@pytest.mark.points(4, part="store", hint=PADDING)
def test_padding_is_not_stored(impl):
    """A slot of -1 is padding: the last slot of the cache stays as it was."""
    new = torch.ones(3, 1, 8, device=DEVICE)
    caches = [torch.zeros(4, 1, 8, device=DEVICE) for _ in range(2)]
    impl.store_kv(new, 2 * new, *caches, tensor([-1, 0, -1], torch.int64))
    got = [cache[:, 0, 0].tolist() for cache in caches]
    expect("the key and the value cache, slot by slot", got, [[1, 0, 0, 0], [2, 0, 0, 0]])


@pytest.mark.points(4, part="torch", hint=GATHER)
def test_one_token_gives_its_value(impl):
    """With a context of one, the softmax is 1, and the output is the value."""
    expect_attention(impl.paged_attention, paged([1, 1, 1]), GATHER)


@pytest.mark.points(5, part="torch", hint=SCALE)
def test_a_context_in_one_block(impl):
    """Four tokens in one block."""
    expect_attention(impl.paged_attention, paged([4], seed=1), SCALE)


@pytest.mark.points(5, part="torch", hint=SLOT)
def test_blocks_in_any_order(impl):
    """Three sequences whose blocks lie mixed in the pool."""
    expect_attention(impl.paged_attention, paged([12, 8, 16], seed=2), SLOT)


@pytest.mark.points(5, part="torch", hint=TAIL)
def test_the_rest_of_a_block(impl):
    """Contexts that end within a block, with huge numbers behind them."""
    expect_attention(impl.paged_attention, paged([5, 2, 11], seed=3), TAIL)


@pytest.mark.points(5, part="torch", hint=GROUPS)
def test_grouped_heads(impl):
    """Six query heads share two kv heads."""
    expect_attention(impl.paged_attention, paged([7, 9], heads=6, kv_heads=2, seed=4), GROUPS)


@pytest.mark.points(6, part="triton", hint=OFFSET)
def test_kernel_in_one_tile(impl):
    """Contexts of four and eight tokens: one tile is enough."""
    expect_attention(in_triton(impl.paged_attention_triton), paged([4, 8], seed=5), OFFSET)


@pytest.mark.points(5, part="triton", hint=MASKED)
def test_kernel_masks_the_rest(impl):
    """Contexts that end within a block, with huge numbers behind them."""
    expect_attention(in_triton(impl.paged_attention_triton), paged([5, 1, 11], seed=6), MASKED)


@pytest.mark.points(5, part="triton", hint=ONLINE)
def test_kernel_with_a_long_context(impl):
    """Eighty tokens, of which later ones have ever larger scores: the maximum grows from tile to tile."""
    case = paged([80], block_size=16, seed=7)
    for position, slot in enumerate(case.slots(0)):
        case.key_cache[slot] = case.query[0] * position / 40
    expect_attention(in_triton(impl.paged_attention_triton), case, ONLINE)


@pytest.mark.points(4, part="triton", hint=GROUPS)
def test_kernel_with_grouped_heads(impl):
    """Six query heads share two kv heads."""
    expect_attention(in_triton(impl.paged_attention_triton), paged([7, 9], heads=6, kv_heads=2, seed=8), GROUPS)
