"""Export to Chrome trace events, which Perfetto opens (ui.perfetto.dev).

One track for the steps, one per sequence, and counters; where it is known, one for what the device
computed. Perfetto drops slices that overlap on a track and misdraws empty ones, so every sequence has
a track of its own and every slice lasts at least a microsecond. The steps of an overlapped run do
overlap: there the slice of a step begins where the one before it ends, and a track of its own shows
when each was scheduled and launched. This is an export: `store.py` holds the format that round-trips.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nanoinfer.trace.spans import sequence_spans
from nanoinfer.trace.trace import Trace
from nanoinfer.trace.usage import usage

ENGINE, SEQUENCES = 1, 2  # process ids: Perfetto groups tracks by process
LAUNCHES, DEVICE = 1, 2  # threads of the engine beside its steps
MICROSECONDS = {"seconds": 1e6, "steps": 1e3}  # a step without a clock is drawn as a millisecond


def to_perfetto(trace: Trace, path: Path) -> None:
    """Write `trace` to `path` as strict JSON."""
    events = [*_names(trace), *_steps(trace), *_launches(trace), *_device(trace), *_counters(trace), *_sequences(trace)]
    document = {"traceEvents": events, "displayTimeUnit": "ms"}
    path.write_text(json.dumps(document, allow_nan=False, separators=(",", ":")), encoding="utf-8")


def _edges(trace: Trace) -> list[tuple[int, int]]:
    """Start and end of each step in whole microseconds, strictly increasing."""
    scale = MICROSECONDS[trace.header.clock_unit]
    edges: list[tuple[int, int]] = []
    for step in trace.steps:
        start = max(round(step.clock * scale), edges[-1][1] if edges else 0)
        edges.append((start, max(round((step.clock + step.timing["duration"]) * scale), start + 1)))
    return edges


def _slice(pid: int, tid: int, name: str, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": start, "dur": end - start, "name": name, "args": args}


def _names(trace: Trace) -> list[dict[str, Any]]:
    tracks = [("process_name", ENGINE, 0, "engine"), ("thread_name", ENGINE, 0, "steps")]
    tracks += [("thread_name", ENGINE, LAUNCHES, "schedule and launch")] if trace.config.overlap else []
    tracks += [("thread_name", ENGINE, DEVICE, "device")] if any("gpu" in step.timing for step in trace.steps) else []
    tracks += [("process_name", SEQUENCES, 0, "sequences")]
    tracks += [("thread_name", SEQUENCES, seq_id + 1, f"sequence {seq_id}") for seq_id in trace.requests]
    return [
        {"ph": "M", "pid": pid, "tid": tid, "ts": 0, "dur": 1, "name": kind, "args": {"name": name}}
        for kind, pid, tid, name in tracks
    ]


def _steps(trace: Trace) -> list[dict[str, Any]]:
    slices = []
    for step, (start, end) in zip(trace.steps, _edges(trace), strict=True):
        args = {
            "step": step.index,
            "sequences": len(step.columns.seq_id),
            "tokens": step.num_batched_tokens,
            "stop": str(step.stop),
            "decode_stop": str(step.decode_stop),
            "preempted": [p.victim for p in step.preempted],
            **({"wasted": step.columns.wasted} if step.columns.wasted else {}),
            **({"graph size": step.graph_size} if step.graph_size is not None else {}),
            **{f"{name} ({trace.header.clock_unit})": value for name, value in step.timing.items()},
        }
        slices.append(_slice(ENGINE, 0, step.phase, start, end, args))
    return slices


def _launches(trace: Trace) -> list[dict[str, Any]]:
    """The scheduler's part of every overlapped step; it does one at a time."""
    if not trace.config.overlap:
        return []
    scale, slices, last = MICROSECONDS[trace.header.clock_unit], list[dict[str, Any]](), 0
    for step in trace.steps:
        start = max(round(step.clock * scale), last)
        end = step.clock + step.timing["schedule"] + step.timing.get("launch", 0.0)
        last = max(round(end * scale), start + 1)
        slices.append(_slice(ENGINE, LAUNCHES, step.phase, start, last, {"step": step.index}))
    return slices


def _device(trace: Trace) -> list[dict[str, Any]]:
    """What the device computed. Only how long it took is known: a slice ends when its tokens were read."""
    scale, slices, last = MICROSECONDS[trace.header.clock_unit], list[dict[str, Any]](), 0
    for step in trace.steps:
        if "gpu" in step.timing:
            end = max(round((step.clock + step.timing["duration"]) * scale), last + 1)
            start = max(end - max(round(step.timing["gpu"] * scale), 1), last)
            graph = {"graph size": step.graph_size} if step.graph_size is not None else {}
            slices.append(_slice(ENGINE, DEVICE, step.phase, start, end, {"step": step.index, **graph}))
            last = end
    return slices


def _counters(trace: Trace) -> list[dict[str, Any]]:
    counters = []
    for step, after, (start, end) in zip(trace.steps, usage(trace), _edges(trace), strict=True):
        values = {
            "KV blocks used": after.used_blocks,
            "waiting": after.num_waiting,
            "running": after.num_running,
            "tokens in step": step.num_batched_tokens,
        }
        for name, value in values.items():
            event = {"ph": "C", "pid": ENGINE, "tid": 0, "ts": start, "dur": end - start, "name": name}
            counters.append(event | {"args": {"value": value}})
    return counters


def _sequences(trace: Trace) -> list[dict[str, Any]]:
    edges, scale = _edges(trace), MICROSECONDS[trace.header.clock_unit]
    slices = []
    for span in sequence_spans(trace):
        if span.kind not in ("waiting", "prefill", "decode", "preempted"):
            continue  # a hit is a detail of its prefill, and an end has no length
        start, end = edges[span.start][0], edges[span.end - 1][1]
        if span.kind in ("waiting", "preempted") and span.end < len(edges):
            end = edges[span.end][0]  # waits until the very moment its next step begins
        arrival = trace.requests[span.seq_id].arrival
        if span.kind == "waiting" and arrival is not None:
            start = min(start, round(arrival * scale))
        args = {"first_step": span.start, "last_step": span.end - 1, "tokens": span.tokens}
        slices.append(_slice(SEQUENCES, span.seq_id + 1, span.kind, start, max(end, start + 1), args))
    return slices
