"""Prefill attention against float64, over caches whose unused slots are nan."""

import pytest
import torch
from kit.comparison import DEVICE, DTYPES, assert_close, random
from kit.helpers import one_in
from kit.paged_cache import PagedCache

from nanoinfer.kernels.paged_decode import paged_decode
from nanoinfer.kernels.paged_prefill import paged_prefill

BOUND = {torch.float32: 5e-6, torch.bfloat16: 6e-3}


def starts_of(query_lens):
    return torch.tensor([0, *query_lens], device=DEVICE).cumsum(0).int()


def check(query_lens, context_lens, kv_heads, group, head_dim, block_size, dtype, query=None, longest=None, bound=None):
    paged = PagedCache(context_lens, kv_heads, head_dim, block_size, dtype)
    if query is None:
        query = random(sum(query_lens), kv_heads * group, head_dim, dtype=dtype)
    scale = head_dim**-0.5
    rows = paged.tables, starts_of(query_lens), paged.context_lens, longest or max(query_lens)
    out = paged_prefill(query, paged.key, paged.value, *rows, block_size, scale)
    assert out.dtype == dtype
    assert out.is_contiguous()
    assert out.shape == query.shape
    for row, part in enumerate(out.split(query_lens)):
        if query_lens[row]:
            assert_close(part, paged.attend(row, query.split(query_lens)[row], scale), bound or BOUND[dtype])
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", one_in(3, [48, 16, 256]))
@pytest.mark.parametrize("group", [1, 2, 4, 8])
def test_shapes(group, block_size, dtype):
    """Whole prompts, a prompt behind a cached prefix, rows of one query, and rows that end one past a tile."""
    check([3, 70, 1, 33], [3, 130, 65, 33], 2 if group < 4 else 1, group, 64, block_size, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("group", "head_dim"), [(2, 128), (5, 16), (3, 32), (40, 16)])
def test_head_dims_and_odd_groups(group, head_dim, dtype):
    check([45, 2], [45, 80], 1, group, head_dim, 16, dtype)


def test_rows_of_one_query_are_decodes():
    paged = PagedCache([5, 64, 100], 2, 64, 16, torch.float32)
    query = random(3, 4, 64)
    prefill = paged_prefill(
        query, paged.key, paged.value, paged.tables, starts_of([1, 1, 1]), paged.context_lens, 1, 16, 0.125
    )
    decode = paged_decode(query, paged.key, paged.value, paged.tables, paged.context_lens, 16, 100, 0.125)
    assert_close(prefill, decode.double())


def test_a_chunk_after_another_equals_the_whole():
    paged = PagedCache([150], 1, 64, 16, torch.float32)
    query = random(150, 2, 64)
    key_value = paged.key, paged.value
    whole = paged_prefill(query, *key_value, paged.tables, starts_of([150]), paged.context_lens, 150, 16, 0.125)
    for start, end in ((0, 64), (64, 149), (149, 150)):
        context = torch.tensor([end], dtype=torch.int32, device=DEVICE)
        rows = paged.tables, starts_of([end - start]), context, end - start
        chunk = paged_prefill(query[start:end], *key_value, *rows, 16, 0.125)
        assert_close(chunk, whole[start:end].double())


def test_later_tokens_of_the_row_are_not_seen():
    """Keys past the causal bound are nan here, even those inside the row's own blocks."""
    paged = PagedCache([100], 1, 64, 16, torch.float32)
    query = random(100, 2, 64)
    key_value = paged.key, paged.value
    whole = paged_prefill(query, *key_value, paged.tables, starts_of([100]), paged.context_lens, 100, 16, 0.125)
    for block in paged.tables[0, 4:7].tolist():
        paged.cache[block * 16 : (block + 1) * 16] = torch.nan
    poisoned = paged_prefill(query, *key_value, paged.tables, starts_of([100]), paged.context_lens, 100, 16, 0.125)
    tile = 32 // 2  # queries that are computed together
    assert torch.equal(poisoned[: 64 // tile * tile], whole[: 64 // tile * tile])
    assert poisoned[64:].isnan().any()


def test_rows_without_queries_and_a_loose_bound():
    check([0, 5, 0], [0, 40, 3], 1, 2, 64, 16, torch.float32, longest=200)


def test_tokens_of_no_row_are_left_alone():
    paged = PagedCache([20], 1, 64, 16, torch.float32)
    query = random(30, 2, 64)
    query[20:] = torch.nan
    rows = paged.tables, starts_of([20]), paged.context_lens, 20
    out = paged_prefill(query, paged.key, paged.value, *rows, 16, 0.125)
    assert_close(out[:20], paged.attend(0, query[:20], 0.125))


def test_queries_are_a_slice_of_wider_rows():
    wide = torch.full((40, 700), torch.nan, device=DEVICE)
    wide[:, 64 : 64 + 256] = random(40, 256)
    check([30, 10], [60, 10], 2, 2, 64, 16, torch.float32, query=wide[:, 64:320].view(40, 4, 64))


def test_large_scores_do_not_overflow():
    check([40], [80], 1, 2, 64, 16, torch.float32, query=100 * random(40, 2, 64), bound=5e-5)
