"""Numbers per step: tokens computed, blocks in use, times. Knows neither matplotlib nor torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from nanoinfer.trace.trace import Trace

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


def tokens_per_step(trace: Trace) -> tuple[Ints, Ints]:
    """(prefill tokens, decode tokens) of every step."""
    prefill, decode = np.zeros((2, len(trace.steps)), dtype=np.int64)
    for i, step in enumerate(trace.steps):
        decode[i] = step.columns.chunk.count(None)  # a decode row computes exactly one token
        prefill[i] = sum(step.columns.num_scheduled) - decode[i]
    return prefill, decode


def wasted_per_step(trace: Trace) -> Ints:
    """Decode tokens of every step that were computed for sequences which had ended."""
    return np.array([len(step.columns.wasted) for step in trace.steps], dtype=np.int64)


def device_times_per_step(trace: Trace) -> tuple[Floats, Floats]:
    """(time the device took, time the CPU took to schedule and launch) of every step, in clock units; 0 if unknown."""
    timings = [step.timing for step in trace.steps]
    device = np.array([timing.get("gpu", 0.0) for timing in timings])
    host = np.array([timing["schedule"] + timing.get("launch", 0.0) for timing in timings])
    return device, host


def used_blocks_per_step(trace: Trace) -> Ints:
    """Blocks held by at least one sequence after every step."""
    return np.array([trace.replay.at(i).num_used_blocks for i in range(len(trace.steps))], dtype=np.int64)


def fullest(total: Ints | Floats, columns: int) -> list[int]:
    """For each of at most `columns` equal slices of the steps, the step with the highest `total`."""
    edges = np.linspace(0, len(total), min(columns, len(total)) + 1).astype(int)
    return [int(a + np.argmax(total[a:b])) for a, b in pairwise(edges)]
