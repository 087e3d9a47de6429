"""The operations between the matrix products as fused kernels: the same methods as `TorchOps`, one launch each."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from nanoinfer.kernels.activation import silu_mul
from nanoinfer.kernels.linear import linear_one_row
from nanoinfer.kernels.norm import add_rms_norm, rms_norm
from nanoinfer.kernels.pending import resolve_pending
from nanoinfer.kernels.rotary_store import norm_rope_store
from nanoinfer.models.ops import LayerCache


class Rotation(NamedTuple):
    """The whole tables [max_positions, head_dim / 2], and the row of each token: the kernel looks its angles up."""

    cos: Tensor
    sin: Tensor
    positions: Tensor


class TritonOps:
    """NVIDIA GPUs, or any machine through Triton's interpreter. Negative slots are padding and are not written."""

    def resolve_pending(self, token_ids: Tensor, sampled: Tensor) -> Tensor:
        return resolve_pending(token_ids, sampled)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if x.shape[0] == 1 and bias is None:
            return linear_one_row(x, weight)
        return F.linear(x, weight, bias)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return rms_norm(x, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        return add_rms_norm(x, residual, weight, eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        return silu_mul(gate_up)

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
