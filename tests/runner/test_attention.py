"""Paged attention against a loop in float64 that reads the cache one slot at a time."""

import random
from itertools import accumulate

import pytest
import torch

from nanoinfer.runner.attention import AttentionBatch, make_backend
from nanoinfer.runner.inputs import pad_block_tables
from nanoinfer.runner.torch_attention import FREE_PADDING, MAX_GROUP_SLOTS, MAX_PADDING, group_by_length

CPU = torch.device("cpu")
HEADS, KV_HEADS, DIM = 6, 2, 8


def naive(query, keys, values):
    """Attention of queries that are the last positions of the context, head by head, in float64."""
    out = torch.zeros(query.shape, dtype=torch.float64)
    context, queries = keys.shape[0], query.shape[0]
    for i in range(queries):
        visible = context - queries + i + 1
        for head in range(HEADS):
            kv_head = head // (HEADS // KV_HEADS)
            scores = keys[:visible, kv_head].double() @ query[i, head].double() / DIM**0.5
            out[i, head] = scores.softmax(0) @ values[:visible, kv_head].double()
    return out


def scenario(block_size, shapes, seed=0):
    """Random tables and tensors for rows of (queries, context), in a cache that is poison where nobody may read."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    num_blocks = sum(-(-context // block_size) for _, context in shapes) + 3
    free = rng.sample(range(num_blocks), num_blocks)
    tables = [[free.pop() for _ in range(-(-context // block_size))] for _, context in shapes]
    keys = [torch.randn(context, KV_HEADS, DIM) for _, context in shapes]
    values = [torch.randn(context, KV_HEADS, DIM) for _, context in shapes]
    queries = [torch.randn(n, HEADS, DIM) for n, _ in shapes]
    slots = [
        [table[p // block_size] * block_size + p % block_size for p in range(context)]
        for table, (_, context) in zip(tables, shapes, strict=True)
    ]
    return num_blocks, tables, keys, values, queries, slots


def run(block_size, shapes, dtype, poison, seed=0):
    num_blocks, tables, keys, values, queries, slots = scenario(block_size, shapes, seed)
    backend = make_backend("torch", CPU, dtype, block_size)
    cache = backend.views(
        torch.full(backend.kv_cache_shape(num_blocks, block_size, KV_HEADS, DIM), poison, dtype=dtype)
    )
    new = [n for n, _ in shapes]
    for key, value, where in zip(keys, values, slots, strict=True):
        cache.key[where], cache.value[where] = key.to(dtype), value.to(dtype)
    batch = AttentionBatch(
        query_lens=new,
        context_lens=[context for _, context in shapes],
        query_starts=torch.tensor([0, *accumulate(new)], dtype=torch.int32),
        context_lengths=torch.tensor([context for _, context in shapes], dtype=torch.int32),
        block_tables=torch.from_numpy(pad_block_tables(tables)),
        block_size=block_size,
    )
    fresh = [torch.cat([x[-n:] for x, n in zip(xs, new, strict=True)]).to(dtype) for xs in (queries, keys, values)]
    out = backend.attend(*fresh, cache, backend.prepare(batch, dtype))
    expected = torch.cat([naive(q, k, v) for q, k, v in zip(queries, keys, values, strict=True)])
    return out, expected


SHAPES = {
    "decode": [(1, n) for n in (1, 2, 3, 4, 5, 16, 17, 31, 32, 33, 40, 7, 9, 64, 63)],
    "prefill": [(n, n) for n in (1, 2, 5, 16, 33)],
    "chunks": [(3, 10), (1, 8), (7, 8), (16, 48), (2, 33)],
    "mixed": [(1, 20), (6, 6), (4, 19), (1, 1), (1, 50)],
}


@pytest.mark.parametrize("block_size", [1, 3, 4, 16, 256])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30], ids=str)
def test_float32(block_size, kind, poison):  # B07: the poison is in every slot past a context
    out, expected = run(block_size, SHAPES[kind], torch.float32, poison)
    assert (out - expected).abs().max() < 1e-5


@pytest.mark.parametrize("block_size", [3, 16])
@pytest.mark.parametrize("kind", SHAPES)
def test_bfloat16(block_size, kind):
    out, expected = run(block_size, SHAPES[kind], torch.bfloat16, float("nan"))
    assert out.dtype == torch.bfloat16
    assert (out - expected).abs().max() < 0.03


def test_random_shapes():
    rng = random.Random(7)
    for seed in range(20):
        contexts = [rng.randint(1, 90) for _ in range(rng.randint(1, 20))]
        shapes = [(rng.choice((1, 1, rng.randint(1, context))), context) for context in contexts]
        out, expected = run(rng.choice((1, 2, 5, 8)), shapes, torch.float32, float("nan"), seed)
        assert (out - expected).abs().max() < 1e-5, (seed, shapes)


def test_groups_hold_every_row_once_and_pad_little():
    rng = random.Random(0)
    lengths = [rng.randint(1, 700) for _ in range(100)]
    groups = group_by_length(list(range(100)), lengths)
    assert sorted(row for group in groups for row in group) == list(range(100))
    assert len(groups) < 20
    for group in groups:
        shortest, longest = min(lengths[r] for r in group), max(lengths[r] for r in group)
        assert longest * len(group) <= MAX_GROUP_SLOTS
        assert longest <= MAX_PADDING * max(shortest, FREE_PADDING)
    assert group_by_length([3, 1], [9, 5000, 9, 7000]) == [[1], [3]]  # too long for a group: alone, not refused


def test_unknown_backend_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"attention_backend.*auto, flash_triton, flash_attn, triton, torch.*'flash'"):
        make_backend("flash", CPU, torch.float32, 16)
    assert make_backend("auto", CPU, torch.float32, 16).name == "torch"
