"""The gate of a SwiGLU feed-forward layer (Shazeer, 2020), from the merged product that holds gate and up."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nanoinfer.kernels.dependent_launch import LAUNCH, wait_for_predecessor

BLOCK = 1024


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, where silu's result is rounded to the dtype first, as torch does.

    Args:
        gate_up: [tokens, 2 * n], gate in the first n columns and up in the others; contiguous along columns.

    Returns:
        A new contiguous tensor [tokens, n] of the same dtype.
    """
    tokens, n = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((tokens, n), dtype=gate_up.dtype, device=gate_up.device)
    _silu_mul[(tokens, triton.cdiv(n, BLOCK))](gate_up, out, gate_up.stride(0), n, BLOCK, **LAUNCH)
    return out


@triton.jit
def _silu_mul(gate_up_ptr: tl.tensor, out_ptr: tl.tensor, stride: int, n: int, BLOCK: tl.constexpr) -> None:
    wait_for_predecessor()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n
    gate = tl.load(gate_up_ptr + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * stride + n + columns, mask=inside, other=0.0).to(tl.float32)
    silu = (gate / (1 + tl.exp(-gate))).to(out_ptr.dtype.element_ty).to(tl.float32)
    tl.store(out_ptr + row * n + columns, silu * up, mask=inside)
