"""Assignment 8, hidden tests: random shapes, numbers that overflow, junk where nobody may read."""

import random

import pytest
import torch

from nanoinfer.course.kits.a8_paged import DEVICE, expect_attention, in_triton, paged

RANDOM = "Try other numbers of heads, block sizes and contexts against your PyTorch version."
STABLE = "Subtract the largest score before exp, and take scores in float32."
JUNK = "No table entry past the context may be read, and no slot: NaN times 0 is NaN."
EMPTY = "A context of 0 has no softmax: its row is zeros."
STRIDES = "The slots of a cache may lie further apart than kv_heads * head_dim: use cache.stride(0)."
HALF = "Compute in float32, return the query's dtype."
INPUTS = "Do not write into what you are given."


def ways(impl):
    """Both versions."""
    return impl.paged_attention, in_triton(impl.paged_attention_triton)


def random_case(seed):
    rng = random.Random(seed)
    kv_heads = rng.randint(1, 3)
    shape = {"heads": kv_heads * rng.randint(1, 3), "kv_heads": kv_heads, "head_dim": rng.choice([16, 32, 64])}
    contexts = [rng.randint(1, 50) for _ in range(rng.randint(1, 4))]
    return paged(contexts, **shape, block_size=rng.choice([1, 2, 4, 8, 16, 32]), seed=seed)


@pytest.mark.points(6, part="torch", hint=RANDOM, visibility="hidden")
def test_random_shapes(impl):
    """Twenty random shapes."""
    for seed in range(20):
        expect_attention(impl.paged_attention, random_case(seed), RANDOM)


@pytest.mark.points(9, part="triton", hint=RANDOM, visibility="hidden")
@pytest.mark.parametrize("first", [100, 200, 300])
def test_kernel_in_random_shapes(impl, first):
    """Six random shapes."""
    for seed in range(first, first + 6):
        expect_attention(in_triton(impl.paged_attention_triton), random_case(seed), RANDOM)


@pytest.mark.points(6, part="numbers", hint=STABLE, visibility="hidden")
@pytest.mark.parametrize("way", [0, 1], ids=["torch", "triton"])
def test_large_scores(impl, way):
    """Scores in the hundreds: exp of them is no number."""
    for case in (paged([20, 33], seed=9), paged([40], block_size=16, seed=10)):
        case.query *= 200
        expect_attention(ways(impl)[way], case, STABLE)


@pytest.mark.points(5, part="numbers", hint=JUNK, visibility="hidden")
@pytest.mark.parametrize("way", [0, 1], ids=["torch", "triton"])
def test_nan_where_nobody_reads(impl, way):
    """Unused slots hold NaN, and unused table entries lead out of the cache."""
    case = paged([5, 18, 2], seed=11, junk=float("nan"))
    for row, context in enumerate(case.context_lens.tolist()):
        case.block_tables[row, -(-context // case.block_size) :] = 10**6
    expect_attention(ways(impl)[way], case, JUNK)


@pytest.mark.points(4, part="numbers", hint=EMPTY, visibility="hidden")
@pytest.mark.parametrize("way", [0, 1], ids=["torch", "triton"])
def test_an_empty_context(impl, way):
    """A row of padding between two others gives zeros."""
    expect_attention(ways(impl)[way], paged([3, 0, 6], seed=12), EMPTY)


@pytest.mark.points(4, part="layout", hint=STRIDES, visibility="hidden")
@pytest.mark.parametrize("way", [0, 1], ids=["torch", "triton"])
def test_keys_and_values_side_by_side(impl, way):
    """One tensor holds keys and values of a slot next to each other; the caches are views of it."""
    case = paged([9, 14], kv_heads=1, seed=13)
    both = torch.stack([case.key_cache, case.value_cache], dim=1)
    case.key_cache, case.value_cache = both[:, 0], both[:, 1]
    expect_attention(ways(impl)[way], case, STRIDES)


@pytest.mark.points(3, part="layout", hint=HALF, visibility="hidden")
@pytest.mark.parametrize("way", [0, 1], ids=["torch", "triton"])
def test_half_precision(impl, way):
    """Caches and queries in float16, with scores beyond its range."""
    case = paged([30], seed=14, dtype=torch.float16)
    case.query *= 100
    case.key_cache *= 100
    expect_attention(ways(impl)[way], case, HALF, tolerance=2e-3)


@pytest.mark.points(3, part="layout", hint=INPUTS, visibility="hidden")
@pytest.mark.parametrize("way", [0, 1], ids=["torch", "triton"])
def test_inputs_stay(impl, way):
    """Queries, caches and tables are as before, and so is a new call's answer."""
    case = paged([6, 3], seed=15)
    before = [x.clone() for x in case.arguments[:5]]
    first = ways(impl)[way](*case.arguments)
    assert all(torch.equal(old, new) for old, new in zip(before, case.arguments, strict=False)), INPUTS
    assert torch.equal(first, ways(impl)[way](*case.arguments)), "the same call gave another answer"
    assert str(first.device).startswith(DEVICE), "the output lies where the query lies"
