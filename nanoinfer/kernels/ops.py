"""The operations between the matrix products as fused kernels: the same methods as `TorchOps`, one launch each."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from nanoinfer.kernels import activation, feed_tokens, norm
from nanoinfer.kernels.linear import linear_few_rows, linear_one_row, parts_of
from nanoinfer.kernels.rotary_store import norm_rope_store
from nanoinfer.models.ops import LayerCache, PartialSums


class Rotation(NamedTuple):
    """The whole tables [max_positions, head_dim / 2], and the row of each token: the kernel looks its angles up."""

    cos: Tensor
    sin: Tensor
    positions: Tensor


class TritonOps:
    """NVIDIA GPUs, or any machine through Triton's interpreter. Negative slots are padding and are not written.

    Only decode steps use our own matrix products: without a CUDA graph the CPU launches them one by one, and is
    faster at launching the library's.
    """

    feed_tokens = staticmethod(feed_tokens.feed_tokens)
    rms_norm = staticmethod(norm.rms_norm)
    add_rms_norm = staticmethod(norm.add_rms_norm)
    silu_mul = staticmethod(activation.silu_mul)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, decoding: bool) -> Tensor:
        if decoding and bias is None:
            if x.shape[0] == 1:
                return linear_one_row(x, weight)
            if parts_of(x, weight) == 1:
                return linear_few_rows(x, weight)
        return F.linear(x, weight, bias)

    def split_linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, decoding: bool) -> Tensor | PartialSums:
        if decoding and bias is None:
            if x.shape[0] == 1:
                return linear_one_row(x, weight)
            if parts := parts_of(x, weight):
                out = linear_few_rows(x, weight)
                return out if parts == 1 else PartialSums(out)
        return F.linear(x, weight, bias)

    def rotation(self, cos: Tensor, sin: Tensor, positions: Tensor) -> Rotation:
        half = cos.shape[1] // 2
        return Rotation(cos[:, half:], sin[:, half:], positions)

    def norm_rotate_store(
        self,
        qkv: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        eps: float,
        rotation: Rotation,
        slot_mapping: Tensor,
        cache: LayerCache,
    ) -> tuple[Tensor, Tensor, Tensor]:
        norm_rope_store(qkv, q_weight, k_weight, eps, *rotation, slot_mapping, cache.key, cache.value)
        kv_heads, head_dim = cache.key.shape[1:]
        heads = qkv.view(len(qkv), -1, head_dim)
        return heads[:, : -2 * kv_heads], heads[:, -2 * kv_heads : -kv_heads], heads[:, -kv_heads:]
