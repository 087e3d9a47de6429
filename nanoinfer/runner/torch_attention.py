"""Paged attention in plain PyTorch: any device, any block size, float32 and bfloat16.

The cache of a layer is a table of token slots, [num_slots, 2, kv_heads, head_dim]: block b holds slots
b * block_size .. (b + 1) * block_size - 1, and a slot holds the token's key and then its value. A sequence's
context is gathered from its slots with one `index_select`, and `scaled_dot_product_attention` does the rest.

Rows with one query (decode) whose blocks happen to lie one after the other read their context where it is. The others
run together in groups of similar context length; the shorter ones are padded by repeating their own last slot, and
masked, so that no slot past a context is ever read, not even to be ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from nanoinfer.models.ops import LayerCache
from nanoinfer.runner.attention import AttentionBatch

# How decodes are grouped: larger groups waste more on padding, smaller ones on calls.
MAX_GROUP_SLOTS = 4096  # gathered in one call; a few megabytes, so that they are still in cache when attended to
MAX_PADDING = 1.5  # longest context over shortest ...
FREE_PADDING = 16  # ... where all contexts up to this length count as equal


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Rows of one query each. `tokens` [rows] are their places in the flat batch, `slots` [rows * longest] their
    contexts, `mask` [rows, 1, 1, longest] is 0 where a key may be seen and -inf where it is padding."""

    tokens: Tensor
    slots: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class DecodeInPlace:
    """A row of one query whose context is the slots `start` to `end - 1`, with nothing in between."""

    token: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """One row of several queries. `slots` and `mask` [queries, context] are None when nothing was cached before:
    then keys and values are the step's own, and the mask is the causal triangle."""

    start: int
    end: int
    slots: Tensor | None
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class TorchMetadata:
    """One step, cut into the calls that attention makes for it in every layer."""

    in_place: list[DecodeInPlace]
    decodes: list[DecodeGroup]
    prefills: list[PrefillRow]


class TorchAttention:
    """The backend that runs everywhere."""

    name = "torch"
    block_multiple = 1
    in_graphs = False

    def kv_cache_shape(self, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int) -> tuple[int, ...]:
        return (num_blocks * block_size, 2, num_kv_heads, head_dim)

    def views(self, blocks: Tensor) -> LayerCache:
        return LayerCache(blocks, *blocks.unbind(1))

    def prepare(self, batch: AttentionBatch, dtype: torch.dtype) -> TorchMetadata:
        ends = list(accumulate(batch.query_lens))
        starts = contiguous_starts(batch)
        decodes = [row for row, length in enumerate(batch.query_lens) if length == 1]
        groups = group_by_length([row for row in decodes if starts[row] < 0], batch.context_lens)
        return TorchMetadata(
            in_place=[
                DecodeInPlace(ends[row] - 1, starts[row], starts[row] + batch.context_lens[row])
                for row in decodes
                if starts[row] >= 0
            ],
            decodes=[decode_group(batch, rows, [ends[row] - 1 for row in rows], dtype) for rows in groups],
            prefills=[prefill_row(batch, row, ends[row]) for row, n in enumerate(batch.query_lens) if n > 1],
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache, metadata: TorchMetadata) -> Tensor:
        kv_cache = cache.blocks
        out = torch.empty_like(query)
        for row in metadata.in_place:
            out[row.token] = attend_in_place(query[row.token], kv_cache[row.start : row.end])
        for group in metadata.decodes:
            contexts = kv_cache.index_select(0, group.slots)
            out[group.tokens] = attend_decodes(query[group.tokens], contexts, group.mask)
        for prefill in metadata.prefills:
            tokens = slice(prefill.start, prefill.end)
            if prefill.slots is None:
                out[tokens] = grouped_query_attention(query[tokens], key[tokens], value[tokens], None)
            else:
                cached_key, cached_value = kv_cache.index_select(0, prefill.slots).unbind(1)
                out[tokens] = grouped_query_attention(query[tokens], cached_key, cached_value, prefill.mask)
        return out


def contiguous_starts(batch: AttentionBatch) -> list[int]:
    """First slot of each row's context where its blocks follow one another in memory, else -1."""
    tables = batch.block_tables
    places = torch.arange(tables.shape[1], device=tables.device)
    last = (torch.tensor(batch.context_lens, device=tables.device).unsqueeze(1) - 1) // batch.block_size
    follows = (tables == tables[:, :1] + places) | (places > last)
    starts: list[int] = torch.where(follows.all(dim=1), tables[:, 0] * batch.block_size, -1).tolist()
    return starts


def group_by_length(rows: list[int], lengths: list[int]) -> list[list[int]]:
    """Split rows, shortest first, into groups that waste little on padding."""
    groups: list[list[int]] = []
    for row in sorted(rows, key=lambda r: lengths[r]):
        if groups and fits(groups[-1], row, lengths):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def fits(group: list[int], row: int, lengths: list[int]) -> bool:
    """Whether a group may take one more row, not shorter than any it has."""
    limit = MAX_PADDING * max(lengths[group[0]], FREE_PADDING)
    return lengths[row] <= limit and (len(group) + 1) * lengths[row] <= MAX_GROUP_SLOTS


def context_slots(tables: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Physical slots of logical positions [rows, n], through block tables [rows, blocks]."""
    return tables.gather(1, positions // block_size) * block_size + positions % block_size


def decode_group(batch: AttentionBatch, rows: list[int], tokens: list[int], dtype: torch.dtype) -> DecodeGroup:
    device = batch.block_tables.device
    lengths = torch.tensor([batch.context_lens[row] for row in rows], device=device).unsqueeze(1)
    positions = torch.arange(batch.context_lens[rows[-1]], device=device)
    readable = torch.minimum(positions, lengths - 1)
    mask = torch.zeros(readable.shape, dtype=dtype, device=device).masked_fill_(positions >= lengths, -torch.inf)
    tables = batch.block_tables[torch.tensor(rows, device=device)]
    slots = context_slots(tables, readable, batch.block_size).flatten()
    return DecodeGroup(torch.tensor(tokens, device=device), slots, mask[:, None, None])


def prefill_row(batch: AttentionBatch, row: int, end: int) -> PrefillRow:
    queries, context = batch.query_lens[row], batch.context_lens[row]
    if queries == context:
        return PrefillRow(end - queries, end, None, None)
    positions = torch.arange(context, device=batch.block_tables.device)
    mask = positions <= positions[-queries:, None]
    slots = context_slots(batch.block_tables[row : row + 1], positions[None], batch.block_size).flatten()
    return PrefillRow(end - queries, end, slots, mask)


def attend_in_place(query: Tensor, context: Tensor) -> Tensor:
    """Attention of one query [heads, dim] to its context [length, 2, kv_heads, dim], read where it lies."""
    heads, dim = query.shape
    key, value = context.permute(1, 2, 0, 3).unsqueeze(1)  # each [1, kv_heads, length, dim]
    per_kv_head = query.view(1, key.shape[1], -1, dim)
    return F.scaled_dot_product_attention(per_kv_head, key, value).reshape(heads, dim)


def attend_decodes(query: Tensor, contexts: Tensor, mask: Tensor) -> Tensor:
    """Attention of single queries [rows, heads, dim], each to its context in [rows * longest, 2, kv_heads, dim].

    The query heads that share a kv head stand where the kernel expects queries, so that keys are read once for all
    of them and never repeated.
    """
    rows, heads, dim = query.shape
    kv_heads = contexts.shape[2]
    key, value = contexts.view(rows, -1, 2, kv_heads, dim).permute(2, 0, 3, 1, 4)  # [rows, kv_heads, longest, dim]
    per_kv_head = query.view(rows, kv_heads, heads // kv_heads, dim)
    mask = mask.expand(-1, -1, heads // kv_heads, -1)
    return F.scaled_dot_product_attention(per_kv_head, key, value, attn_mask=mask).reshape(rows, heads, dim)


def grouped_query_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of one sequence: query [n, heads, dim], key and value [context, kv_heads, dim], causal without a
    mask. Keys are expanded to their query heads with stride 0, not copied."""
    queries, heads, dim = query.shape
    context, kv_heads, _ = key.shape
    shape = (kv_heads, heads // kv_heads, context, dim)
    q = query.view(queries, kv_heads, heads // kv_heads, dim).permute(1, 2, 0, 3)
    k, v = (x.transpose(0, 1).unsqueeze(1).expand(shape) for x in (key, value))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    return out.permute(2, 0, 1, 3).reshape(queries, heads, dim)
