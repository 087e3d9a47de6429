"""What crosses between host and GPU for a step in flight: inputs on the way there, tokens and times on the way back.

CUDA graphs read inputs at fixed addresses; copies from and to pinned memory do not make the host wait. Two steps can be
in flight, so host memory is there twice; the device's inputs once, since it runs its copies and its steps in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nanoinfer.core.plan import StepResult
from nanoinfer.runner.host_step import HostStep

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


class OutputBuffer:
    """Where one step in flight leaves its results: pinned memory for the tokens, two CUDA events for the time."""

    def __init__(self, max_rows: int) -> None:
        self.start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.tokens = torch.zeros(max_rows, dtype=torch.int64, pin_memory=True)


class InFlight:
    """A step that the GPU is computing or will compute.

    Args:
        output: its events and tokens; later steps use it again.
        sampled: [rows] ids on the device; copied to the host after all work enqueued so far.
        step: what was enqueued.
        check: called while waiting and once afterwards; raises when there will be no result.
        began: `time.perf_counter()` when its launch began.
    """

    def __init__(
        self, output: OutputBuffer, sampled: Tensor, step: HostStep, check: Callable[[], None], began: float
    ) -> None:
        self.output = output
        self.places = step.places
        self.graph_size = step.graph_size
        self.check = check
        output.tokens[: len(sampled)].copy_(sampled, non_blocking=True)
        output.end.record()
        self.launch_time = time.perf_counter() - began

    def result(self) -> StepResult:
        """Wait for the device; one sampled id for each row of the plan.

        Its timing, in seconds: "launch", and "gpu" from the moment the device could begin to the sampled tokens.
        """
        while not self.output.end.query():  # type: ignore[no-untyped-call]
            self.check()
        self.check()  # an aborted step ends early too
        timing = {"launch": self.launch_time, "gpu": self.output.start.elapsed_time(self.output.end) / 1e3}
        return StepResult(self.output.tokens[self.places].tolist(), timing, self.graph_size)
