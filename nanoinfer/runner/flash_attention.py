"""FlashAttention-2 (Dao, 2023) with its paged KV cache: the calls that nano-vLLM makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache
from torch import Tensor

from nanoinfer.models.ops import LayerCache
from nanoinfer.runner.attention import AttentionBatch, KeysThenValues

if TYPE_CHECKING:  # flash-attn alone works without triton
    from nanoinfer.runner.triton_attention import TritonMetadata


@dataclass(frozen=True, slots=True)
class FlashMetadata:
    """`block_tables` is None where no context lies in the cache. For rows of several queries, `key_starts` [rows + 1]
    holds where each row's context begins in all of them joined; it is None in a decode step."""

    batch: AttentionBatch
    block_tables: Tensor | None
    key_starts: Tensor | None = None
    longest_query: int = 1
    longest_context: int = 1


class FlashAttention(KeysThenValues):
    """The backend for bfloat16 on a recent NVIDIA GPU."""

    name = "flash_attn"
    block_multiple = 256  # of the library's paged kernels
    in_graphs = True

    def prepare(self, batch: AttentionBatch, dtype: torch.dtype) -> FlashMetadata:  # noqa: ARG002
        if batch.is_decode:
            return FlashMetadata(batch, batch.block_tables)
        key_starts = torch.zeros_like(batch.query_starts)
        torch.cumsum(batch.context_lengths, dim=0, dtype=torch.int32, out=key_starts[1:])
        tables = batch.block_tables if batch.has_cached_context else None
        return FlashMetadata(batch, tables, key_starts, max(batch.query_lens), max(batch.context_lens))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache, metadata: FlashMetadata) -> Tensor:
        if metadata.key_starts is None:
            out: Tensor = flash_attn_with_kvcache(
                query.unsqueeze(1),
                *cache.blocks.unbind(0),
                cache_seqlens=metadata.batch.context_lengths,
                block_table=metadata.block_tables,
                causal=True,
            )
            return out.squeeze(1)
        if metadata.block_tables is not None:
            key, value = cache.blocks.unbind(0)
        out = flash_attn_varlen_func(
            query,
            key,
            value,
            metadata.batch.query_starts,
            metadata.key_starts,
            metadata.longest_query,
            metadata.longest_context,
            causal=True,
            block_table=metadata.block_tables,
        )
        return out  # noqa: RET504 (the library is untyped: `out` is declared above)


class FlashTritonAttention(FlashAttention):
    """The library for prefill, our own kernel for decode: each where it is the faster one.

    Prefill is arithmetic, where the library is hard to beat. Decode is reading memory, and our kernel keeps more of it
    under way, above all when contexts differ in length; `docs/performance.md` has the figures. Both share the layout
    of the cache.
    """

    name = "flash_triton"

    def __init__(self) -> None:
        from nanoinfer.runner.triton_attention import TritonAttention

        self.decoder = TritonAttention()

    def prepare(  # type: ignore[override]
        self, batch: AttentionBatch, dtype: torch.dtype
    ) -> FlashMetadata | TritonMetadata:
        return self.decoder.prepare(batch, dtype) if batch.is_decode else super().prepare(batch, dtype)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache, metadata: FlashMetadata | TritonMetadata
    ) -> Tensor:
        if isinstance(metadata, FlashMetadata):
            return super().attend(query, key, value, cache, metadata)
        return self.decoder.attend(query, key, value, cache, metadata)
