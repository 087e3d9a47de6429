"""The operations between the matrix products as fused kernels: the methods of `Ops`, one launch each."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from nanoinfer.kernels import activation, norm
from nanoinfer.kernels.dependent_launch import LAUNCH, wait_for_predecessor
from nanoinfer.kernels.linear import linear_few_rows, linear_one_row, parts_of
from nanoinfer.kernels.rotary_store import norm_rope_store
from nanoinfer.models.ops import LayerCache, Ops, PartialSums

FED_AT_ONCE = 256  # tokens of one program


class Rotation(NamedTuple):
    """The whole tables [max_positions, head_dim / 2], and the row of each token: the kernel looks its angles up."""

    cos: Tensor
    sin: Tensor
    positions: Tensor


class TritonOps(Ops):
    """NVIDIA GPUs, or any machine through Triton's interpreter. Negative slots are padding and are not written.

    Only decode steps use our own matrix products: without a CUDA graph the CPU launches them one by one, and is
    faster at launching the library's.
    """

    rms_norm = staticmethod(norm.rms_norm)
    add_rms_norm = staticmethod(norm.add_rms_norm)
    silu_mul = staticmethod(activation.silu_mul)

    def feed_tokens(self, token_ids: Tensor, sampled: Tensor) -> Tensor:
        tokens, out = len(token_ids), torch.empty(token_ids.shape, dtype=torch.int64, device=token_ids.device)
        grid = (triton.cdiv(tokens, FED_AT_ONCE),)
        _feed_tokens[grid](token_ids, sampled, out, tokens, FED_AT_ONCE, num_warps=2, **LAUNCH)
        return out

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, decoding: bool) -> Tensor:
        if decoding and bias is None:
            if x.shape[0] == 1:
                return linear_one_row(x, weight)
            if parts_of(x, weight) == 1:
                return linear_few_rows(x, weight)
        return F.linear(x, weight, bias)

    def split_linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, decoding: bool) -> Tensor | PartialSums:
        if decoding and bias is None and x.shape[0] > 1 and (parts := parts_of(x, weight)):
            out = linear_few_rows(x, weight)
            return out if parts == 1 else PartialSums(out)
        return self.linear(x, weight, bias, decoding and x.shape[0] == 1)

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


@triton.jit(do_not_specialize=["tokens"], do_not_specialize_on_alignment=["token_ids_ptr"])
def _feed_tokens(
    token_ids_ptr: tl.tensor, sampled_ptr: tl.tensor, out_ptr: tl.tensor, tokens: int, BLOCK: tl.constexpr
) -> None:
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < tokens
    wait_for_predecessor()
    ids = tl.load(token_ids_ptr + places, mask=inside, other=0).to(tl.int64)
    known = tl.load(sampled_ptr + (-1 - ids), mask=inside & (ids < 0), other=0)
    tl.store(out_ptr + places, tl.where(ids < 0, known, ids), mask=inside)
