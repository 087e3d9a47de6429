"""Stores into a copy of the cache.

Hint: cache[slots] = new writes in place; a name on the left of = only makes a new name.
"""

import torch
from torch import Tensor

from nanoinfer.kernels.interpreter import triton_interpreter

if not torch.cuda.is_available():
    triton_interpreter()  # before triton is imported

import triton
import triton.language as tl

TILE = 16  # tokens that the kernel reads at a time


def token_slots(block_table: Tensor, context_len: int, block_size: int) -> Tensor:
    positions = torch.arange(context_len, device=block_table.device)
    return block_table[positions // block_size].long() * block_size + positions % block_size


def store_kv(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor) -> None:
    real = slots >= 0
    key_cache = key_cache.index_copy(0, slots[real], key[real])
    value_cache = value_cache.index_copy(0, slots[real], value[real])


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    block_size: int,
    scale: float,
) -> Tensor:
    out = torch.zeros_like(query)
    group = query.shape[1] // key_cache.shape[1]
    for row, context in enumerate(context_lens.tolist()):
        if context == 0:
            continue
        slots = token_slots(block_tables[row], context, block_size)
        key, value = (cache[slots].float().repeat_interleave(group, dim=1) for cache in (key_cache, value_cache))
        scores = torch.einsum("hd,thd->ht", query[row].float(), key) * scale
        out[row] = torch.einsum("ht,thd->hd", scores.softmax(dim=-1), value).to(query.dtype)
    return out


def paged_attention_triton(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    block_size: int,
    scale: float,
) -> Tensor:
    out = torch.empty_like(query)
    rows, heads, head_dim = query.shape
    attend[(rows, heads)](
        query,
        key_cache,
        value_cache,
        block_tables,
        context_lens,
        out,
        scale,
        key_cache.stride(0),
        value_cache.stride(0),
        block_tables.stride(0),
        heads // key_cache.shape[1],
        head_dim,
        block_size,
        TILE,
    )
    return out


@triton.jit
def attend(
    query_ptr,
    key_ptr,
    value_ptr,
    tables_ptr,
    lens_ptr,
    out_ptr,
    scale,
    key_stride,
    value_stride,
    table_stride,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    row, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    columns = tl.arange(0, HEAD_DIM)
    place = (row * heads + head) * HEAD_DIM + columns
    offset = (head // GROUP) * HEAD_DIM + columns[None, :]
    context = tl.load(lens_ptr + row)
    query = tl.load(query_ptr + place).to(tl.float32)
    best = float("-inf")
    total = 0.0
    out = tl.zeros([HEAD_DIM], tl.float32)
    for start in range(0, context, TILE):
        tokens = start + tl.arange(0, TILE)
        seen = tokens < context
        blocks = tl.load(tables_ptr + row * table_stride + tokens // BLOCK_SIZE, mask=seen, other=0)
        slots = (blocks.to(tl.int64) * BLOCK_SIZE + tokens % BLOCK_SIZE)[:, None]
        key = tl.load(key_ptr + slots * key_stride + offset, mask=seen[:, None], other=0.0).to(tl.float32)
        value = tl.load(value_ptr + slots * value_stride + offset, mask=seen[:, None], other=0.0).to(tl.float32)
        scores = tl.where(seen, tl.sum(key * query[None, :], axis=1) * scale, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, axis=0))
        weights = tl.exp(scores - new_best)
        shrink = tl.exp(best - new_best)
        out = out * shrink + tl.sum(weights[:, None] * value, axis=0)
        total = total * shrink + tl.sum(weights, axis=0)
        best = new_best
    out = out / tl.where(total > 0, total, 1.0)
    tl.store(out_ptr + place, out.to(out_ptr.dtype.element_ty))
