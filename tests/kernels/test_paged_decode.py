"""Decode attention against float64, over caches whose unused slots are nan."""

import pytest
import torch
from kit.comparison import DEVICE, DTYPES, assert_close, random
from kit.helpers import one_in, slow
from kit.paged_cache import PagedCache

from nanoinfer.kernels import paged_decode as module
from nanoinfer.kernels.paged_decode import num_splits, paged_decode

BOUND = {torch.float32: 5e-6, torch.bfloat16: 6e-3}


def check(context_lens, kv_heads, group, head_dim, block_size, dtype, max_context=None, query=None, bound=None):
    paged = PagedCache(context_lens, kv_heads, head_dim, block_size, dtype)
    if query is None:
        query = random(len(context_lens), kv_heads * group, head_dim, dtype=dtype)
    scale = head_dim**-0.5
    places = paged.tables, paged.context_lens, block_size, max_context or max(context_lens)
    out = paged_decode(query, paged.key, paged.value, *places, scale)
    assert out.dtype == dtype
    assert out.is_contiguous()
    for row, length in enumerate(context_lens):
        if length:
            assert_close(out[row : row + 1], paged.attend(row, query[row : row + 1], scale), bound or BOUND[dtype])
        else:
            assert not out[row].any()
    return out


@pytest.fixture
def few_splits(monkeypatch):
    """With so few rows a context would always be cut into single tiles."""
    monkeypatch.setattr(module, "PROCESSORS", 4)


@pytest.fixture
def one_split(monkeypatch):
    monkeypatch.setattr(module, "PROCESSORS", 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", one_in(2, [48, 16, 64, 256]))
@pytest.mark.parametrize("group", [1, 2, 4, 8])
def test_shapes(group, block_size, dtype, few_splits):
    check([1, 63, 65, 200], 2 if group < 4 else 1, group, 64, block_size, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("group", "head_dim"), [(2, 128), (5, 16), (20, 32)])
def test_head_dims_and_odd_groups(group, head_dim, dtype, few_splits):
    check([130, 7], 1, group, head_dim, 16, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_split_writes_its_output_as_it_is(dtype, one_split):
    check([150, 1, 0, 64], 2, 2, 64, 16, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_as_many_splits_as_tiles(dtype):
    check([1, 64, 129, 512], 1, 2, 64, 48, dtype)


@pytest.mark.filterwarnings("ignore:invalid value")  # -inf - -inf in a row of padding, masked afterwards
def test_splits_without_work_change_nothing(few_splits):
    """A captured graph's max_context is far above what the rows have."""
    check([3, 70, 0, 128], 1, 2, 64, 16, torch.float32, max_context=10_000)


@pytest.mark.filterwarnings("ignore:invalid value")  # -inf - -inf in a row of padding, masked afterwards
def test_rows_of_padding_are_zero_and_read_nothing(few_splits):
    check([0, 5, 0], 2, 2, 64, 16, torch.float32)
    paged = PagedCache([1], 1, 16, 16, torch.float32)
    nowhere = torch.full((3, 2), 2**30, dtype=torch.int32, device=DEVICE)
    empty = torch.zeros(3, dtype=torch.int32, device=DEVICE)
    out = paged_decode(random(3, 2, 16), paged.key, paged.value, nowhere, empty, 16, 500, 1.0)
    assert not out.any()


def test_queries_are_a_slice_of_wider_rows(few_splits):
    wide = torch.full((2, 700), torch.nan, device=DEVICE)
    wide[:, 64 : 64 + 256] = random(2, 256)
    check([100, 33], 2, 2, 64, 16, torch.float32, query=wide[:, 64:320].view(2, 4, 64))


def test_large_scores_do_not_overflow(few_splits):
    check([100, 300], 1, 2, 64, 16, torch.float32, query=100 * random(2, 2, 64), bound=5e-5)


def test_keys_and_values_may_lie_in_tensors_of_their_own(few_splits):
    paged = PagedCache([90], 2, 64, 16, torch.float32)
    query = random(1, 4, 64)
    places = paged.tables, paged.context_lens, 16, 90, 0.125
    wide_value = torch.stack((paged.value, paged.value.neg(), paged.value.neg()), dim=1)[:, 0]
    expected = paged_decode(query, paged.key, paged.value, *places)
    assert torch.equal(paged_decode(query, paged.key.contiguous(), wide_value, *places), expected)


def test_the_number_of_splits_fills_the_gpu_and_leaves_no_split_without_a_tile():
    assert num_splits(256 * 8, 1024) == num_splits(16 * 8, 4096) == 1
    assert num_splits(8 * 8, 4096) == 5
    assert num_splits(8, 1 << 20) == module.MAX_SPLITS
    assert num_splits(8, 1) == num_splits(0, 0) == 1
    for rows in range(1, 200):
        splits = num_splits(rows * 8, 4096)
        assert rows * 8 * splits >= 99 or splits == module.MAX_SPLITS
        assert splits * module.TILE <= 4096


@pytest.mark.parametrize("rows", [1, 3, 26, slow(30)])
def test_any_number_of_programs(rows):
    """One split and several, shallow and deep pipelines."""
    check([(37 * row) % 150 + 1 for row in range(rows)], 8, 2, 16, 16, torch.float32, max_context=160)


def test_no_rows():
    paged = PagedCache([1], 1, 16, 16, torch.float32)
    nothing = torch.zeros(0, dtype=torch.int32, device=DEVICE)
    assert paged_decode(random(0, 2, 16), paged.key, paged.value, paged.tables[:0], nothing, 16, 64, 1.0).shape[0] == 0
