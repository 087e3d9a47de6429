"""A step that was started on the GPU: waits for its tokens, and knows how long it took.

Times are CUDA events, read together with the tokens: they add no wait of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from nanoinfer.core.plan import StepResult
from nanoinfer.runner.host_step import HostStep


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
