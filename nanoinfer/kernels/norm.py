"""RMSNorm (Zhang and Sennrich, 2019), alone or together with the residual addition before it.

One program normalises one row: it is read once and stays in registers between the sum of squares and the product.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nanoinfer.kernels.dependent_launch import LAUNCH, wait_for_predecessor
from nanoinfer.models.ops import PartialSums

MAX_PARTS = 6  # of partial sums


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in float32 inside.

    Args:
        x: [tokens, hidden], contiguous along hidden.
        weight: [hidden].
        eps: keeps a row of zeros finite.

    Returns:
        A new contiguous tensor [tokens, hidden] of x's dtype.
    """
    return launch(x, None, weight, eps)


def add_rms_norm(x: Tensor | PartialSums, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Add x to `residual` in place, then normalise what `residual` now holds: its rounded values.

    Args:
        x: [tokens, hidden], contiguous along hidden; or up to MAX_PARTS partial sums, which are added up first.
        residual: [tokens, hidden], contiguous along hidden; changed.
        weight: [hidden].
        eps: keeps a row of zeros finite.

    Returns:
        A new contiguous tensor [tokens, hidden] of residual's dtype.
    """
    return launch(x, residual, weight, eps)


def launch(x: Tensor | PartialSums, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    parts, part_stride, most_parts = 1, 0, 1
    if isinstance(x, PartialSums):
        x = x.parts
        parts, part_stride, most_parts = len(x), x.stride(0), MAX_PARTS
    tokens, hidden = x.shape[-2:]
    dtype = x.dtype if residual is None else residual.dtype
    out = torch.empty((tokens, hidden), dtype=dtype, device=x.device)
    block = triton.next_power_of_2(hidden)
    residual_stride = 0 if residual is None else residual.stride(0)
    _rms_norm[(tokens,)](
        x,
        residual,
        weight,
        out,
        x.stride(-2),
        part_stride,
        parts,
        residual_stride,
        hidden,
        eps,
        block,
        most_parts,
        num_warps=min(max(block // 256, 1), 8),
        **LAUNCH,
    )
    return out


@triton.jit(do_not_specialize=["parts"])
def _rms_norm(
    x_ptr: tl.tensor,
    residual_ptr: tl.tensor | None,
    weight_ptr: tl.tensor,
    out_ptr: tl.tensor,
    x_stride: int,
    part_stride: int,
    parts: int,
    residual_stride: int,
    hidden: int,
    eps: float,
    BLOCK: tl.constexpr,
    MAX_PARTS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < hidden
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    wait_for_predecessor()
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    for part in tl.static_range(1, MAX_PARTS):
        there = columns < tl.where(part < parts, hidden, 0)
        x += tl.load(x_ptr + part * part_stride + row * x_stride + columns, mask=there, other=0.0).to(tl.float32)
    if residual_ptr is not None:
        place = residual_ptr + row * residual_stride + columns
        total = (tl.load(place, mask=inside, other=0.0).to(tl.float32) + x).to(residual_ptr.dtype.element_ty)
        tl.store(place, total, mask=inside)
        x = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / hidden + eps)
    tl.store(out_ptr + row * hidden + columns, x * scale * weight, mask=inside)
