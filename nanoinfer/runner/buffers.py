"""Where a step's inputs cross to the GPU: pinned host memory, one copy, and device tensors that never move.

CUDA graphs read their inputs at fixed addresses, and a copy from pinned memory does not make the host wait. Two steps
can be in flight, so there are two host sides, used in turn; the device side is one, since the device runs its copies
and its steps in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ALIGNMENT = 16  # bytes, for vector loads


class InputBuffer:
    """Named arrays of bounded size in one stretch of memory.

    Args:
        shapes: for each name its dtype and largest shape, in memory order; the last should be the one that varies
            most in size, because one copy moves everything up to the end of the last one filled.
        device: a CUDA device.
    """

    def __init__(self, shapes: Mapping[str, tuple[npt.DTypeLike, tuple[int, ...]]], device: torch.device) -> None:
        self.shapes = {name: (np.dtype(dtype), shape) for name, (dtype, shape) in shapes.items()}
        self.offsets: dict[str, int] = {}
        size = 0
        for name, (dtype, shape) in self.shapes.items():
            self.offsets[name] = size
            size += -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self.hosts = [torch.zeros(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self.device = torch.zeros(size, dtype=torch.uint8, device=device)
        self.turn = 0

    def upload(self, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Tensor]:
        """Copy the arrays to the device, without waiting for it; returns the device's tensors, in the arrays' shapes.

        The tensors hold these values until the next upload that follows on the same stream.
        """
        self.turn = 1 - self.turn
        host = self.hosts[self.turn]
        memory, end = host.numpy(), 0
        for name, array in arrays.items():
            start = self.offsets[name]
            end = max(end, start + array.nbytes)
            memory[start : start + array.nbytes].view(array.dtype)[:] = array.reshape(-1)
        self.device[:end].copy_(host[:end], non_blocking=True)
        return self.views({name: array.shape for name, array in arrays.items()})

    def views(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """Device tensors of these shapes at the places of their names."""
        views = {}
        for name, shape in shapes.items():
            dtype, largest = self.shapes[name]
            assert prod(shape) <= prod(largest), f"{name} {shape} is larger than its buffer {largest}"
            start = self.offsets[name]
            flat = self.device[start : start + prod(shape) * dtype.itemsize]
            views[name] = flat.view(getattr(torch, dtype.name)).view(shape)
        return views
