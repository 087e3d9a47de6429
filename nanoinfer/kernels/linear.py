"""Linear layers for one token and for a few: a matrix times one vector, and times some dozens.

Such a product is fast when it reads the matrix once, at the speed of memory; libraries tune for more rows. Both
kernels cut the matrix so that all of it is requested at once, and request it before they wait for the kernel in
front: a library's kernels begin to read when that one has ended.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from nanoinfer.kernels.dependent_launch import LAUNCH, wait_for_predecessor
from nanoinfer.kernels.interpreter import is_interpreting
from nanoinfer.kernels.norm import MAX_PARTS
from nanoinfer.kernels.paged_decode import PROCESSORS

ROWS = 4  # of one program
COLUMNS = 1024  # read at a time
# What a program for a few tokens takes: the fewest outputs that Hopper's tensor cores accept, and a number of inputs
# by the most tokens. Its pieces of the matrix and of x, 128 to 192 KiB, fill a processor's shared memory.
FEATURES = 64
INPUTS = {32: 1024, 64: 512}
SHARED_BYTES = 2 * INPUTS[32] * (FEATURES + 32)


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


def parts_of(x: Tensor, weight: Tensor) -> int:
    """The number of parts in which `linear_few_rows` computes x @ weight^T; 0 where it cannot, or a library is faster.

    On an H200 it is the faster one up to 64 rows, where all programs run at once, one to a processor: for matrices of
    a few MiB.
    """
    (rows, in_features), out_features = x.shape, weight.shape[0]
    if rows > max(INPUTS) or x.dtype.itemsize != 2 or in_features % 8 or not has_shared_memory(x.device):
        return 0
    parts = triton.cdiv(in_features, tile(rows)[1])
    programs = parts * triton.cdiv(out_features, FEATURES)
    return int(parts) if parts <= MAX_PARTS and programs <= PROCESSORS else 0


@cache
def has_shared_memory(device: torch.device) -> bool:
    """Whether a program's pieces fit: on an H100, H200 or B200."""
    if is_interpreting():
        return True
    available: int = torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    return available > SHARED_BYTES


def tile(rows: int) -> tuple[int, int]:
    """How many tokens and inputs a program takes."""
    return next((block, inputs) for block, inputs in INPUTS.items() if rows <= block)


def linear_few_rows(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight^T of a 16-bit dtype with sums in float32, in one part, or in parts that the reader adds up.

    A program takes some outputs and some inputs; where there are more inputs, there is a part for each of these cuts.
    Parts rather than additions in memory, whose order would change from run to run.

    Args:
        x: [rows, in_features], contiguous along in_features, a multiple of 8; at most 64 rows.
        weight: [out_features, in_features], contiguous along in_features.

    Returns:
        A new tensor: [rows, out_features] of x's dtype, or float32 [parts, rows, out_features], see `parts_of`.
    """
    (rows, in_features), out_features = x.shape, weight.shape[0]
    block, inputs = tile(rows)
    parts = triton.cdiv(in_features, inputs)
    shape, dtype = ((rows, out_features), x.dtype) if parts == 1 else ((parts, rows, out_features), torch.float32)
    out = torch.empty(shape, dtype=dtype, device=x.device)
    _few_rows[(triton.cdiv(out_features, FEATURES), parts)](
        TensorDescriptor.from_tensor(x, [block, inputs]),
        TensorDescriptor.from_tensor(weight, [FEATURES, inputs]),
        out,
        rows,
        out_features,
        block,
        FEATURES,
        inputs,
        **LAUNCH,
    )
    return out


@triton.jit(do_not_specialize=["rows"])
def _few_rows(
    x_desc: tl.tensor_descriptor,
    weight_desc: tl.tensor_descriptor,
    out_ptr: tl.tensor,
    rows: int,
    out_features: int,
    ROWS: tl.constexpr,
    FEATURES: tl.constexpr,
    INPUTS: tl.constexpr,
) -> None:
    """Both pieces go from memory to shared memory by the copy engine, and from there into the tensor cores; what lies
    past an edge is read as 0."""
    first_feature, part = tl.program_id(0) * FEATURES, tl.program_id(1)
    weight = weight_desc.load([first_feature, part * INPUTS])
    wait_for_predecessor()
    x = x_desc.load([0, part * INPUTS])
    out = tl.dot(weight, x.T)  # outputs are the rows here: tensor cores want 64 of these, and 8 columns
    feature, row = first_feature + tl.arange(0, FEATURES)[:, None], tl.arange(0, ROWS)[None, :]
    places = out_ptr + (part * rows + row) * out_features + feature
    tl.store(places, out, mask=(feature < out_features) & (row < rows))
