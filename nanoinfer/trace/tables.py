"""A trace as pandas tables, for people who think in DataFrames."""

from __future__ import annotations

import pandas as pd

from nanoinfer.trace.events import Event
from nanoinfer.trace.metrics import request_times
from nanoinfer.trace.trace import Trace
from nanoinfer.trace.usage import usage


def to_pandas(trace: Trace) -> dict[str, pd.DataFrame]:
    """DataFrames "steps" (one row per step), "rows", "events" and "requests"."""
    return {
        "steps": _steps(trace),
        "rows": _rows(trace),
        "events": _nullable(pd.DataFrame(trace.events, columns=list(Event._fields)), "seq_id", "block_id"),
        "requests": pd.DataFrame([r.to_dict() for r in request_times(trace)]),
    }


def _steps(trace: Trace) -> pd.DataFrame:
    records = [
        {
            "step": step.index,
            "clock": step.clock,
            "phase": step.phase,
            "num_rows": len(step.columns.seq_id),
            "num_batched_tokens": step.num_batched_tokens,
            "num_waiting": after.num_waiting,
            "num_running": after.num_running,
            "num_preempted": len(step.preempted),
            "stop": str(step.stop.reason),
            "stop_operands": step.stop.operands,
            "decode_stop": str(step.decode_stop.reason),
            "free_blocks": after.free_blocks,
            "used_blocks": after.used_blocks,
            "filled_slots": after.filled_slots,
            "wasted_rows": len(step.columns.wasted),
            "graph_size": step.graph_size,
            **{f"{name}_time": value for name, value in step.timing.items()},
        }
        for step, after in zip(trace.steps, usage(trace), strict=True)
    ]
    frame = pd.DataFrame(records)
    return _nullable(frame, "graph_size") if records else frame


def _rows(trace: Trace) -> pd.DataFrame:
    names = ("seq_id", "num_computed", "num_cached", "num_scheduled", "token_id", "chunk")
    frames = [
        pd.DataFrame({"step": step.index, **{name: getattr(step.columns, name) for name in names}})
        for step in trace.steps
    ]
    if not frames:
        return pd.DataFrame(columns=["step", *names])
    return _nullable(pd.concat(frames, ignore_index=True), "token_id")  # a dropped sample has none


def _nullable(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Integers that may be missing stay integers."""
    return frame.astype(dict.fromkeys(columns, "Int64"))
