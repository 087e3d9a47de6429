"""Where Triton's interpreter differs from a GPU, made good for the tests.

It keeps bfloat16 as bit patterns: conversions truncate instead of rounding to nearest, and dot products multiply the
patterns as if they were integers. The package makes good the rest, which float32 needs too.
"""

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from nanoinfer.kernels import interpreter


def to_float32(bits):
    return torch.from_numpy(np.ascontiguousarray(bits).view(np.int16)).view(torch.bfloat16).float().numpy()


def to_bfloat16(values):
    return torch.from_numpy(np.ascontiguousarray(values)).bfloat16().view(torch.int16).numpy().view(np.uint16)


def repair_interpreter():
    """Replace conversions from and to bfloat16 and dot products of it, besides what the package repairs."""
    interpreter.repair_interpreter()
    original_cast, original_dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def cast(self, handle, dst_type):
        pair = handle.dtype.scalar, dst_type.scalar
        if pair == (tl.bfloat16, tl.float32):
            return TensorHandle(to_float32(handle.data), tl.float32)
        if pair == (tl.float32, tl.bfloat16):
            return TensorHandle(to_bfloat16(handle.data), tl.bfloat16)
        assert tl.bfloat16 not in pair or pair[0] == pair[1], f"no conversion for {pair}"
        return original_cast(self, handle, dst_type)

    def dot(self, a, b, *rest):
        if a.dtype.scalar == b.dtype.scalar == tl.bfloat16:
            a, b = (TensorHandle(to_float32(x.data), tl.float32) for x in (a, b))
        return original_dot(self, a, b, *rest)

    InterpreterBuilder.cast_impl = cast
    InterpreterBuilder.create_fp_to_fp = lambda self, handle, dst_type, rounding: cast(self, handle, dst_type)
    InterpreterBuilder.create_dot = dot
