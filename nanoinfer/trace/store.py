"""Traces as files: versioned JSON Lines that round-trip exactly.

One line for the header, one per request, one per step with its events, one for the outputs, and an
end line that counts the others, so a cut file is noticed. `docs/trace-format.md` describes each line.

A step's rows are written as the columns that differ from what the step before makes likely (the same
sequences, each one token further), so a steady decode step costs little more than its tokens.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Literal

from nanoinfer.reasons import Preemption, Stop
from nanoinfer.trace.events import SCHEMA_VERSION, Event
from nanoinfer.trace.state import SchedulerState, events_of_step
from nanoinfer.trace.steps import RowColumns, Step
from nanoinfer.trace.trace import Header, Request, Trace

FORMAT = "nanoinfer-trace"
COLUMNS = ("seq_id", "num_computed", "num_cached", "num_scheduled", "chunk")


def save(trace: Trace, path: Path) -> None:
    """Write `trace` to `path`; a name that ends in .gz is compressed."""
    with _open(path, "w") as file:
        for line in _lines(trace):
            file.write(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n")


def load(path: Path) -> Trace:
    """Read a trace. See `Trace.load` for what it raises."""
    lines = _read(path)
    _check_header(lines, path)
    try:
        trace = _parse(lines)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: a line is missing or lacks what it should hold ({error!r})") from error
    counts = _counts(trace)
    if lines[-1] != {"type": "end", **counts}:
        raise ValueError(f"{path} is truncated or damaged: it holds {counts} and ends with {lines[-1]}")
    return trace


def _open(path: Path, mode: Literal["r", "w"]) -> IO[str]:
    if path.suffix != ".gz":
        return path.open(mode, encoding="utf-8")
    # mtime=0: the same trace gives the same bytes.
    return TextIOWrapper(gzip.GzipFile(path, mode + "b", mtime=0), encoding="utf-8")


# ---- writing ------------------------------------------------------------------------------


def _lines(trace: Trace) -> Iterator[dict[str, Any]]:
    yield {"type": "header", "format": FORMAT, **vars(trace.header), "initial": trace.header.initial.to_dict()}
    for request in trace.requests.values():
        yield {"type": "request", **vars(request)}
    previous = RowColumns([], [], [], [], [], [])
    for step in trace.steps:
        yield _step_line(step, previous) | {"events": _pack_events(events_of_step(trace.events, step.index))}
        previous = step.columns
    # What happened after the last step (an abort, a new arrival) belongs to no step line. Of an overlapped run that
    # goes on, neither does what belongs to the step in flight, nor what came after that.
    after, later = (_pack_events(events_of_step(trace.events, len(trace.steps) + i)) for i in (0, 1))
    yield {"type": "outputs", "outputs": trace.outputs, "events": after} | ({"later_events": later} if later else {})
    yield {"type": "end", **_counts(trace)}


def _counts(trace: Trace) -> dict[str, int]:
    return {name: len(getattr(trace, name)) for name in ("requests", "steps", "events", "outputs")}


def _step_line(step: Step, previous: RowColumns) -> dict[str, Any]:
    expected = _expected(previous)
    columns = {name: getattr(step.columns, name) for name in COLUMNS}
    line = {
        "type": "step",
        "clock": step.clock,
        "phase": step.phase,
        "rows": {name: column for name, column in columns.items() if column != expected[name]},
        "token_id": step.columns.token_id,
        "stop": _pack_stop(step.stop),
        "decode_stop": _pack_stop(step.decode_stop),
        "timing": step.timing,
    }
    if step.graph_size is not None:
        line["graph_size"] = step.graph_size
    return line | ({"preempted": [asdict(p) for p in step.preempted]} if step.preempted else {})


def _expected(previous: RowColumns) -> dict[str, list[Any]]:
    """The columns of a step that decodes the rows of the one before."""
    pairs = zip(previous.num_computed, previous.num_scheduled, strict=True)
    return {
        "seq_id": previous.seq_id,
        "num_computed": [computed + scheduled for computed, scheduled in pairs],
        "num_cached": previous.num_cached,
        "num_scheduled": [1] * len(previous.seq_id),
        "chunk": [None] * len(previous.seq_id),
    }


def _pack_stop(stop: Stop) -> list[Any]:
    return [stop.reason, stop.operands] if stop.operands else [stop.reason]


def _pack_events(events: list[Event]) -> list[list[Any]]:
    packed = []
    for event in events:
        values = list(event[1:])
        while values[-1] is None:
            values.pop()
        packed.append(values)
    return packed


# ---- reading ------------------------------------------------------------------------------


def _read(path: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    try:
        with _open(path, "r") as file:
            lines.extend(map(json.loads, file))
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is truncated or no trace: line {len(lines) + 1} cannot be read ({error})") from error
    return lines


def _check_header(lines: list[dict[str, Any]], path: Path) -> None:
    if not lines or not isinstance(lines[0], dict) or lines[0].get("format") != FORMAT:
        raise ValueError(f"{path} is no nanoinfer trace: its first line is not a trace header")
    schema = lines[0].get("schema_version")
    if not isinstance(schema, int) or schema > SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema version {schema}, newer than {SCHEMA_VERSION}, the newest this nanoinfer reads; "
            "upgrade nanoinfer"
        )


def _parse(lines: list[dict[str, Any]]) -> Trace:
    trace = Trace(_header(lines[0]))
    previous = RowColumns([], [], [], [], [], [])
    for line in lines[1:]:
        if line["type"] == "request":
            request = Request(**{name: value for name, value in line.items() if name != "type"})
            trace.requests[request.seq_id] = request
        elif line["type"] == "step":
            trace.events += _unpack_events(line["events"], len(trace.steps))
            trace.steps.append(_step(line, previous, trace))
            previous = trace.steps[-1].columns
        elif line["type"] == "outputs":
            trace.events += _unpack_events(line["events"], len(trace.steps))
            trace.events += _unpack_events(line.get("later_events", []), len(trace.steps) + 1)
            trace.outputs = line["outputs"]
    return trace


def _header(line: dict[str, Any]) -> Header:
    values = {name: value for name, value in line.items() if name not in ("type", "format")}
    return Header(**values | {"initial": SchedulerState.from_dict(line["initial"])})


def _step(line: dict[str, Any], previous: RowColumns, trace: Trace) -> Step:
    columns = _expected(previous) | line["rows"]
    columns["chunk"] = [None if chunk is None else (chunk[0], chunk[1]) for chunk in columns["chunk"]]
    return Step(
        index=len(trace.steps),
        clock=line["clock"],
        phase=line["phase"],
        columns=RowColumns(**columns, token_id=line["token_id"]),
        preempted=[Preemption(**p) for p in line.get("preempted", [])],
        stop=Stop(*line["stop"]),
        decode_stop=Stop(*line["decode_stop"]),
        timing=line["timing"],
        trace=trace,
        graph_size=line.get("graph_size"),
    )


def _unpack_events(events: list[list[Any]], step: int) -> list[Event]:
    return [Event(step, *values) for values in events]
