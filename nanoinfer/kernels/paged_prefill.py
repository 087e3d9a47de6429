"""Causal attention of several queries per row over a paged KV cache, in the manner of FlashAttention (Dao, 2023).

Rows of any lengths are computed together: prompts, later chunks of prompts, prompts behind a cached prefix, and rows
of one query. All keys and values, the queries' own included, lie in the cache already. One program takes a tile of
one row's queries and the query heads that share a kv head, and goes through the keys up to its last query.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nanoinfer.kernels.attention_tile import LOG2_E, attend_to_tile, token_slots
from nanoinfer.kernels.dependent_launch import LAUNCH, wait_for_predecessor

TILE = 64  # keys read at a time
STAGES = 5  # of Triton's software pipeline: two block numbers, then two tiles of keys and values are under way


def paged_prefill(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lens: Tensor,
    max_query_len: int,
    block_size: int,
    scale: float,
) -> Tensor:
    """softmax(query . keys * scale) . values, each query seeing its row's tokens up to itself and no other slot.

    Args:
        query: [tokens, heads, head_dim], contiguous within a token; head_dim is a power of two from 16.
        key_cache: [num_slots, kv_heads, head_dim], contiguous within a slot.
        value_cache: like key_cache, with its own slot stride.
        block_tables: int32 [rows, max_blocks]; entries past a context may hold anything.
        query_starts: int32 [rows + 1]: row i owns tokens query_starts[i] to query_starts[i + 1] - 1.
        context_lens: int32 [rows]: tokens the row may see; its queries are the last of them.
        max_query_len: no row owns more tokens.
        block_size: slots of a block, a multiple of 16.
        scale: of the dot products, 1 / sqrt(head_dim) as a rule.

    Returns:
        A new contiguous tensor [tokens, heads, head_dim] of query's dtype. Tokens that no row owns are not written.
    """
    heads, head_dim = query.shape[1:]
    kv_heads = key_cache.shape[1]
    group = heads // kv_heads
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    lines = 128 if query.element_size() == 2 else 32  # float32 has no tensor cores here, and fills registers
    lines = max(lines, triton.next_power_of_2(group))
    _attend_tile[(triton.cdiv(max_query_len, lines // group), kv_heads, len(context_lens))](
        query,
        key_cache,
        value_cache,
        block_tables,
        query_starts,
        context_lens,
        out,
        scale * LOG2_E,
        query.stride(0),
        key_cache.stride(0),
        value_cache.stride(0),
        block_tables.stride(0),
        group,
        lines,
        head_dim,
        block_size,
        TILE,
        num_warps=8,
        num_stages=STAGES,
        **LAUNCH,
    )
    return out


@triton.jit(
    do_not_specialize=["table_stride"],
    do_not_specialize_on_alignment=["tables_ptr", "query_starts_ptr", "context_lens_ptr"],
)
def _attend_tile(
    query_ptr: tl.tensor,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    tables_ptr: tl.tensor,
    query_starts_ptr: tl.tensor,
    context_lens_ptr: tl.tensor,
    out_ptr: tl.tensor,
    scale: float,
    query_stride: int,
    key_stride: int,
    value_stride: int,
    table_stride: int,
    GROUP: tl.constexpr,
    LINES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """A line of the tile is one head of one query; the heads of a query follow one another."""
    kv_head, row = tl.program_id(1), tl.program_id(2).to(tl.int64)
    kv_heads = tl.num_programs(1)
    QUERIES: tl.constexpr = LINES // GROUP
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * QUERIES  # late queries see most and start first
    wait_for_predecessor()
    start = tl.load(query_starts_ptr + row)
    queries = tl.load(query_starts_ptr + row + 1) - start
    if first >= queries:
        return

    cached = tl.load(context_lens_ptr + row) - queries
    line, columns = tl.arange(0, LINES), tl.arange(0, HEAD_DIM)
    number = first + line // GROUP
    inside = (line < QUERIES * GROUP) & (number < queries)
    heads = kv_head * GROUP + line % GROUP
    tokens = (start + number).to(tl.int64)
    query_places = query_ptr + (tokens * query_stride + heads * HEAD_DIM)[:, None] + columns[None, :]
    query = tl.load(query_places, mask=inside[:, None], other=0.0)
    key_ptr += kv_head * HEAD_DIM
    value_ptr += kv_head * HEAD_DIM
    table_ptr = tables_ptr + row * table_stride
    best = tl.full([LINES], float("-inf"), tl.float32)
    total = tl.zeros([LINES], tl.float32)
    out = tl.zeros([LINES, HEAD_DIM], tl.float32)
    end = cached + tl.minimum(first + QUERIES, queries)
    for tile in range(0, end, TILE):
        positions = tile + tl.arange(0, TILE)
        stored = positions < end
        slots = token_slots(table_ptr, tile, end, BLOCK_SIZE, TILE)[:, None]
        key = tl.load(key_ptr + slots * key_stride + columns[None, :], mask=stored[:, None], other=0.0)
        value = tl.load(value_ptr + slots * value_stride + columns[None, :], mask=stored[:, None], other=0.0)
        visible = positions[None, :] <= (cached + number)[:, None]
        best, total, out = attend_to_tile(query, key, value, visible, scale, best, total, out)

    places = out_ptr + ((tokens * kv_heads * GROUP + heads) * HEAD_DIM)[:, None] + columns[None, :]
    tl.store(places, out / total[:, None], mask=inside[:, None])
