"""Starting a kernel before the one in front of it has ended (programmatic dependent launch, NVIDIA Hopper and later).

A decode step is some two hundred kernels of a few microseconds, and between two of them the GPU idles while the next
one is set up. With this, the next one is set up early, and waits inside, before it touches what its predecessor
writes. Every kernel here waits before it reads or writes anything but weights, so the order of all effects stays what
it was.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from nanoinfer.kernels.interpreter import is_interpreting

EARLY = not is_interpreting() and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
EARLY_IN_KERNELS = tl.constexpr(EARLY)
LAUNCH = {"launch_pdl": True} if EARLY else {}  # options of every launch


@triton.jit
def wait_for_predecessor() -> None:
    """Until all kernels in front have ended and what they wrote can be read; then let the next one be set up."""
    if EARLY_IN_KERNELS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
