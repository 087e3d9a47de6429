"""Paged attention by our own Triton kernels: NVIDIA GPUs, float32 and bfloat16, blocks of any multiple of 16 slots."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nanoinfer.kernels.paged_decode import paged_decode
from nanoinfer.kernels.paged_prefill import paged_prefill
from nanoinfer.models.ops import LayerCache
from nanoinfer.runner.attention import AttentionBatch, KeysThenValues


@dataclass(frozen=True, slots=True)
class TritonMetadata:
    """The batch, and the longest query and context, which decide how much runs in parallel. In a decode step the
    longest context is what the block tables could hold: a captured graph serves every length up to it."""

    batch: AttentionBatch
    longest_query: int
    longest_context: int


class TritonAttention(KeysThenValues):
    """The backend for GPUs without flash-attn, for float32, and for small blocks."""

    name = "triton"
    block_multiple = 16  # tensor cores multiply tiles of 16
    in_graphs = True

    def prepare(self, batch: AttentionBatch, dtype: torch.dtype) -> TritonMetadata:  # noqa: ARG002
        if batch.is_decode:
            return TritonMetadata(batch, 1, batch.block_tables.shape[1] * batch.block_size)
        return TritonMetadata(batch, max(batch.query_lens), max(batch.context_lens))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache, metadata: TritonMetadata) -> Tensor:  # noqa: ARG002
        batch, scale = metadata.batch, query.shape[-1] ** -0.5
        if metadata.longest_query == 1:
            return paged_decode(
                query,
                cache.key,
                cache.value,
                batch.block_tables,
                batch.context_lengths,
                batch.block_size,
                metadata.longest_context,
                scale,
            )
        return paged_prefill(
            query,
            cache.key,
            cache.value,
            batch.block_tables,
            batch.query_starts,
            batch.context_lengths,
            metadata.longest_query,
            batch.block_size,
            scale,
        )
