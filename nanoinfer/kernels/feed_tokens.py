"""Fills in the input tokens that the step before has sampled: they are on the device and nowhere else yet."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nanoinfer.kernels.dependent_launch import LAUNCH, wait_for_predecessor

BLOCK = 256


def feed_tokens(token_ids: Tensor, sampled: Tensor) -> Tensor:
    """Each id, with -1 - i replaced by sampled[i].

    Args:
        token_ids: int32 [tokens], contiguous.
        sampled: int64 [rows], contiguous.

    Returns:
        A new tensor int64 [tokens].
    """
    out = torch.empty(token_ids.shape, dtype=torch.int64, device=token_ids.device)
    tokens = len(token_ids)
    _feed_tokens[(triton.cdiv(tokens, BLOCK),)](token_ids, sampled, out, tokens, BLOCK, num_warps=2, **LAUNCH)
    return out


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
