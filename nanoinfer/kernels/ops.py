"""The operations between the matrix products as fused kernels: the same methods as `TorchOps`, one launch each."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from nanoinfer.kernels.activation import silu_mul
from nanoinfer.kernels.linear import linear_few_rows, linear_one_row, parts_of
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
    """NVIDIA GPUs, or any machine through Triton's interpreter. Negative slots are padding and are not written.

    Matrix products are our own only in decode steps: elsewhere the CPU launches them one by one, and launches the
    library's sooner.
    """

    decoding = False

    def resolve_pending(self, token_ids: Tensor, sampled: Tensor) -> Tensor:
        return resolve_pending(token_ids, sampled)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, in_parts: bool = False) -> Tensor:
        own = self.decoding and bias is None
        if own and x.shape[0] == 1:
            return linear_one_row(x, weight)
        parts = parts_of(x, weight) if own else 0
        if parts == 1 or (parts > 1 and in_parts):
            return linear_few_rows(x, weight)
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
