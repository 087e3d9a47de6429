"""A step that was started on the GPU: its tokens when they are there, and how long it took.

Times are CUDA events, read when the tokens are: they add no wait of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from nanoinfer.core.plan import StepResult
from nanoinfer.runner.host_step import HostStep


class Slot:
    """What one step in flight needs: two CUDA events and pinned memory for its tokens. Used again for later steps."""

    def __init__(self, max_rows: int) -> None:
        self.start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.tokens = torch.zeros(max_rows, dtype=torch.int64, pin_memory=True)


class InFlight:
    """A step that the GPU is computing or will compute.

    Args:
        slot: where its events and tokens are.
        sampled: [rows] ids on the device; copied to the host behind everything that was enqueued so far.
        step: what was enqueued.
        check: called while waiting and once after it; raises when there is no result to be had.
        began: `time.perf_counter()` when its launch began.
    """

    def __init__(self, slot: Slot, sampled: Tensor, step: HostStep, check: Callable[[], None], began: float) -> None:
        self.slot = slot
        self.places = step.places
        self.graph_size = step.graph_size
        self.check = check
        slot.tokens[: len(sampled)].copy_(sampled, non_blocking=True)
        slot.end.record()
        self.launch_time = time.perf_counter() - began

    def result(self) -> StepResult:
        """Wait for the device; one sampled id for each row of the plan.

        Its timing, in seconds: "launch", and "gpu" from the moment the device could begin to the sampled tokens.
        """
        while not self.slot.end.query():  # type: ignore[no-untyped-call]
            self.check()
        self.check()  # what was given up ends early too
        timing = {"launch": self.launch_time, "gpu": self.slot.start.elapsed_time(self.slot.end) / 1e3}
        return StepResult(self.slot.tokens[self.places].tolist(), timing, self.graph_size)
