"""A linear layer for one token: a matrix times one vector.

All that counts is to read the matrix once, at the speed of memory; libraries tune matrix products for more rows. Each
program takes a few rows of the matrix, so that all of it is asked for at once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nanoinfer.kernels.handover import LAUNCH, wait_for_predecessor

ROWS = 4  # of one program
COLUMNS = 1024  # read at a time


def linear_one_row(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight^T in float32, rounded once.

    Args:
        x: [1, in_features], contiguous.
        weight: [out_features, in_features], contiguous.

    Returns:
        A new tensor [1, out_features] of x's dtype.
    """
    out_features, in_features = weight.shape
    out = torch.empty((1, out_features), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out_features, ROWS),)
    _one_row[grid](x, weight, out, out_features, in_features, ROWS, COLUMNS, num_warps=8, **LAUNCH)
    return out


@triton.jit
def _one_row(
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    out_ptr: tl.tensor,
    out_features: int,
    in_features: int,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    is_row = rows < out_features
    places = weight_ptr + rows[:, None].to(tl.int64) * in_features + columns[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    weight = tl.load(places, mask=is_row[:, None] & (columns < in_features)[None, :], other=0.0)
    wait_for_predecessor()  # the weights are on their way already
    for start in range(0, in_features, COLUMNS):
        x = tl.load(x_ptr + start + columns, mask=start + columns < in_features, other=0.0)
        total += weight.to(tl.float32) * x.to(tl.float32)[None, :]
        inside = start + COLUMNS + columns < in_features
        weight = tl.load(places + start + COLUMNS, mask=is_row[:, None] & inside[None, :], other=0.0)
    tl.store(out_ptr + rows, tl.sum(total, axis=1), mask=is_row)
