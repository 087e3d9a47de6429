"""The operations of a step besides attention, in plain PyTorch, written to be read.

`nanoinfer/kernels/` overrides them with fused GPU kernels. Results are rounded to
the model's dtype at the same places, so that both give the same numbers up to the order of a sum.

This file knows nothing of layers, and decides nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class LayerCache(NamedTuple):
    """One layer's KV cache: `blocks` in the layout its attention backend reads, and two views of the same memory,
    `key` and `value` [num_slots, kv_heads, head_dim], that a token's slot is written through."""

    blocks: Tensor
    key: Tensor
    value: Tensor


class PartialSums(NamedTuple):
    """The result of a matrix product, still to be added up over `parts`, float32 [parts, num_tokens, out_features]:
    each sums over a piece of the inner dimension (split-K)."""

    parts: Tensor


class Ops:
    """What a step does besides attention, on any device and in any dtype."""

    def feed_tokens(self, token_ids: Tensor, sampled: Tensor) -> Tensor:
        """Token ids [num_tokens] with each -1 - i replaced by sampled[i], as int64."""
        return torch.where(token_ids < 0, sampled[(-1 - token_ids).clamp(min=0)], token_ids)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, decoding: bool) -> Tensor:  # noqa: ARG002
        """x W^T + b of x [num_tokens, in_features] and weight [out_features, in_features]; `decoding` says that each
        row of the step is one token."""
        return F.linear(x, weight, bias)

    def split_linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, decoding: bool) -> Tensor | PartialSums:
        """As `linear`, but the sum may be left to `add_rms_norm`."""
        return self.linear(x, weight, bias, decoding)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x / rms(x) * weight over the last dimension (Zhang and Sennrich, 2019), in float32 inside."""
        return F.rms_norm(x, weight.shape, weight, eps)

    def add_rms_norm(self, x: Tensor | PartialSums, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Adds x to `residual` in place, and returns the normalised sum."""
        assert isinstance(x, Tensor), "split_linear above leaves no partial sums"
        return F.rms_norm(residual.add_(x), weight.shape, weight, eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up of [num_tokens, 2 * n], as [num_tokens, n] (Shazeer, 2020)."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def rotation(self, cos: Tensor, sin: Tensor, positions: Tensor) -> Any:
        """What `norm_rotate_store` needs from the rotary tables [max_positions, head_dim] for tokens at `positions`."""
        return cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)  # broadcast over heads, the same in all layers

    def norm_rotate_store(
        self,
        qkv: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        eps: float,
        rotation: Any,
        slot_mapping: Tensor,
        cache: LayerCache,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Normalise and rotate queries and keys, and write keys and values to their slots of the cache.

        Args:
            qkv: [num_tokens, (heads + 2 * kv_heads) * head_dim]; may be overwritten.
            q_weight: [head_dim], of the norm of each query head.
            k_weight: [head_dim], of the norm of each key head.
            eps: of both norms.
            rotation: from `rotation()`.
            slot_mapping: [num_tokens], the cache slot of each token. Padding, which only CUDA graphs have, is negative:
                the kernels do not write it, and here it is not allowed.
            cache: this layer's.

        Returns:
            query [num_tokens, heads, head_dim], key and value [num_tokens, kv_heads, head_dim].
        """
        kv_heads, head_dim = cache.key.shape[1:]
        heads = qkv.view(len(qkv), -1, head_dim)
        q, k, v = torch.split_with_sizes(heads, (heads.shape[1] - 2 * kv_heads, kv_heads, kv_heads), dim=1)
        q = rotate(self.rms_norm(q, q_weight, eps), *rotation)
        k = rotate(self.rms_norm(k, k_weight, eps), *rotation)
        slots = slot_mapping.long()
        cache.key.index_copy_(0, slots, k)
        cache.value.index_copy_(0, slots, v)
        return q, k, v


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each channel pair of x [num_tokens, heads, head_dim] by its token's angle, in float32 inside."""
    first, second = x.chunk(2, dim=-1)
    swapped = torch.cat((second, first), dim=-1)  # cos and sin are float32, so all products are
    return torch.addcmul(x * cos, swapped, sin).to(x.dtype)
