"""Attention of one query per row over a paged KV cache: split-KV, known as flash-decoding (Dao et al., 2023).

Decoding reads every cached key and value once and computes little, so it is fast when it keeps the memory busy: a
context is cut into splits that different programs read at the same time, each with a softmax of its own, and a second
kernel joins them. The query heads that share a kv head are the lines of one program's matrix.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nanoinfer.kernels.attention_tile import LOG2_E, attend_to_tile, token_slots
from nanoinfer.kernels.dependent_launch import LAUNCH, wait_for_predecessor

TILE = 64  # tokens read at a time
MAX_SPLITS = 12  # more take longer to join than they save
PROCESSORS = 132  # of an H200; the rules below were measured on one, see docs/performance.md
# Stages of Triton's software pipeline: two block numbers come first, then two or three tiles of keys and values are
# under way. Three processors' worth of programs fit with two tiles each, and two with three.
STAGES, DEEP_STAGES = 5, 7


def paged_decode(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    block_size: int,
    max_context: int,
    scale: float,
) -> Tensor:
    """softmax(query . keys * scale) . values for each row; no slot past a row's context is read.

    Args:
        query: [rows, heads, head_dim], contiguous within a row; head_dim is a power of two from 16.
        key_cache: [num_slots, kv_heads, head_dim], contiguous within a slot.
        value_cache: like key_cache, with its own slot stride.
        block_tables: int32 [rows, max_blocks]; entries past a context may hold anything.
        context_lens: int32 [rows]: tokens the row sees, its own included; 0 gives a row of zeros.
        block_size: slots of a block, a multiple of 16.
        max_context: no context is longer; with the shapes it decides the number of splits.
        scale: of the dot products, 1 / sqrt(head_dim) as a rule.

    Returns:
        A new contiguous tensor [rows, heads, head_dim] of query's dtype.
    """
    rows, heads, head_dim = query.shape
    kv_heads = key_cache.shape[1]
    splits = num_splits(rows * kv_heads, max_context)
    out = torch.empty((rows, heads, head_dim), dtype=query.dtype, device=query.device)
    # One split is written as it is; several leave their outputs and the logarithms of their sums to be joined.
    partial = out if splits == 1 else out.new_empty((rows, heads, splits, head_dim), dtype=torch.float32)
    log_sums = None if splits == 1 else out.new_empty((rows, heads, splits), dtype=torch.float32)
    group = heads // kv_heads
    _attend_split[(splits, kv_heads, rows)](
        query,
        key_cache,
        value_cache,
        block_tables,
        context_lens,
        partial,
        log_sums,
        scale * LOG2_E,
        query.stride(0),
        key_cache.stride(0),
        value_cache.stride(0),
        block_tables.stride(0),
        group,
        max(triton.next_power_of_2(group), 16),
        head_dim,
        block_size,
        TILE,
        num_warps=4,
        num_stages=num_stages(rows * kv_heads * splits),
        **LAUNCH,
    )
    if log_sums is not None:
        _join_splits[(rows * heads,)](
            partial, log_sums, out, splits, triton.next_power_of_2(MAX_SPLITS), head_dim, **LAUNCH
        )
    return out


def num_splits(programs: int, max_context: int) -> int:
    """Into how many pieces a context is cut, when one piece gives `programs` programs: one where these nearly fill the
    GPU, else as many as give each processor two. A function of shapes alone, so that a captured graph
    is right for any contexts."""
    if 4 * programs >= 3 * PROCESSORS:
        return 1
    wanted = triton.cdiv(2 * PROCESSORS, max(programs, 1))
    splits: int = max(min(wanted, triton.cdiv(max_context, TILE), MAX_SPLITS), 1)
    return splits


def num_stages(programs: int) -> int:
    """Deep where a processor gets two programs at most, and most of them two: these must keep the memory busy alone."""
    return DEEP_STAGES if 3 * PROCESSORS < 2 * programs <= 4 * PROCESSORS else STAGES


@triton.jit(do_not_specialize=["table_stride"], do_not_specialize_on_alignment=["tables_ptr", "context_lens_ptr"])
def _attend_split(
    query_ptr: tl.tensor,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    tables_ptr: tl.tensor,
    context_lens_ptr: tl.tensor,
    out_ptr: tl.tensor,
    log_sums_ptr: tl.tensor | None,
    scale: float,
    query_stride: int,
    key_stride: int,
    value_stride: int,
    table_stride: int,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    split, kv_head, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    splits, kv_heads = tl.num_programs(0), tl.num_programs(1)
    members, columns = tl.arange(0, GROUP_BLOCK), tl.arange(0, HEAD_DIM)
    heads = kv_head * GROUP + members
    is_head = members < GROUP
    places = (row * kv_heads * GROUP + heads) * splits + split

    wait_for_predecessor()
    context = tl.load(context_lens_ptr + row)
    length = tl.cdiv(tl.cdiv(context, splits), TILE) * TILE
    start = split * length
    end = tl.minimum(start + length, context)
    if start >= end:  # nothing to read, in a row of padding or past a short context
        if log_sums_ptr is None:
            zeros = tl.zeros([GROUP_BLOCK, HEAD_DIM], out_ptr.dtype.element_ty)
            tl.store(out_ptr + places[:, None] * HEAD_DIM + columns[None, :], zeros, mask=is_head[:, None])
        else:
            tl.store(log_sums_ptr + places, tl.full([GROUP_BLOCK], float("-inf"), tl.float32), mask=is_head)
        return

    query_places = query_ptr + row * query_stride + heads[:, None] * HEAD_DIM + columns[None, :]
    query = tl.load(query_places, mask=is_head[:, None], other=0.0)
    key_ptr += kv_head * HEAD_DIM
    value_ptr += kv_head * HEAD_DIM
    table_ptr = tables_ptr + row * table_stride
    best = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    out = tl.zeros([GROUP_BLOCK, HEAD_DIM], tl.float32)
    for tile in range(start, end, TILE):
        seen = tile + tl.arange(0, TILE) < end
        slots = token_slots(table_ptr, tile, end, BLOCK_SIZE, TILE)[:, None]
        key = tl.load(key_ptr + slots * key_stride + columns[None, :], mask=seen[:, None], other=0.0)
        value = tl.load(value_ptr + slots * value_stride + columns[None, :], mask=seen[:, None], other=0.0)
        best, total, out = attend_to_tile(query, key, value, seen[None, :], scale, best, total, out)

    tl.store(out_ptr + places[:, None] * HEAD_DIM + columns[None, :], out / total[:, None], mask=is_head[:, None])
    if log_sums_ptr is not None:
        tl.store(log_sums_ptr + places, best + tl.log2(total), mask=is_head)


@triton.jit(do_not_specialize=["splits"])
def _join_splits(
    partial_ptr: tl.tensor,
    log_sums_ptr: tl.tensor,
    out_ptr: tl.tensor,
    splits: int,
    SPLITS_BLOCK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
) -> None:
    """The mean of a head's splits, weighted by their sums; those without work have none and are not read."""
    head = tl.program_id(0).to(tl.int64)
    split, columns = tl.arange(0, SPLITS_BLOCK), tl.arange(0, HEAD_DIM)
    places = head * splits + split
    wait_for_predecessor()
    log_sums = tl.load(log_sums_ptr + places, mask=split < splits, other=float("-inf"))
    worked = log_sums > float("-inf")
    best = tl.max(log_sums, axis=0)
    weights = tl.where(worked, tl.exp2(log_sums - best), 0.0)
    total = tl.sum(weights, axis=0)
    partial = tl.load(partial_ptr + places[:, None] * HEAD_DIM + columns[None, :], mask=worked[:, None], other=0.0)
    out = tl.sum(partial * weights[:, None], axis=0) / tl.where(total > 0, total, 1.0)
    tl.store(out_ptr + head * HEAD_DIM + columns, out)
