"""FlashAttention-2 for prefill and our own kernel for decode: each where it is the faster one.

Prefill is arithmetic, where the library is hard to beat. Decode is reading memory, and our kernel keeps more of it
under way, above all when contexts differ in length; `docs/performance.md` has the figures.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nanoinfer.models.ops import LayerCache
from nanoinfer.runner.attention import AttentionBatch
from nanoinfer.runner.flash_attention import FlashAttention, FlashMetadata
from nanoinfer.runner.triton_attention import TritonAttention, TritonMetadata


class FlashTritonAttention(FlashAttention):
    """The two backends share the layout of the cache; a step goes to one or the other."""

    name = "flash_triton"

    def __init__(self) -> None:
        self.decoder = TritonAttention()

    def prepare(  # type: ignore[override]
        self, batch: AttentionBatch, dtype: torch.dtype
    ) -> FlashMetadata | TritonMetadata:
        return self.decoder.prepare(batch, dtype) if batch.is_decode else super().prepare(batch, dtype)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache, metadata: FlashMetadata | TritonMetadata
    ) -> Tensor:
        if isinstance(metadata, TritonMetadata):
            return self.decoder.attend(query, key, value, cache, metadata)
        return super().attend(query, key, value, cache, metadata)
