"""Programmatic dependent launch (PDL, NVIDIA Hopper and later): a kernel is set up while the one before it still runs.

A decode step is some two hundred kernels of a few microseconds, and without PDL the GPU idles between two of them.
A kernel that is set up early waits inside, before it touches what its predecessor writes. Every kernel here waits
before it reads or writes anything but weights, so all effects keep their order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from nanoinfer.kernels.interpreter import is_interpreting

PDL = not is_interpreting() and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
PDL_IN_KERNELS = tl.constexpr(PDL)
LAUNCH = {"launch_pdl": True} if PDL else {}  # options of every launch


@triton.jit
def wait_for_predecessor() -> None:
    """Wait until all earlier kernels have ended and their writes can be read; then let the next one be set up."""
    if PDL_IN_KERNELS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
