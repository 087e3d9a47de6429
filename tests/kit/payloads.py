"""What a payload must say, worked out from the trace; tests/web/payload.test.mjs reads the payload and compares."""

from __future__ import annotations

from typing import Any

from nanoinfer import Trace
from nanoinfer.explore.pack import pack
from nanoinfer.trace.spans import KINDS, sequence_spans

CHANGES = ("allocate", "reuse", "share", "release", "evict_hash")


def case(name: str, trace: Trace, payload: dict[str, Any] | None = None, every: int = 1) -> dict[str, Any]:
    """A payload in which each frame is one step, and what it must say of every `every`-th step."""
    steps = range(0, len(trace.steps), every)
    return {
        "name": name,
        "payload": pack(trace) if payload is None else payload,
        "frames": len(trace.steps),
        "states": {i: state_of(trace, i) for i in steps},
        "steps": {i: _step(trace, i) for i in steps},
        "spans": [
            [s.seq_id, s.kind, s.start, s.end - s.start, s.tokens] for s in sorted(sequence_spans(trace), key=_order)
        ],
        "rows": [row for i in range(len(trace.steps)) for row in _rows(trace, i)],
    }


def twins(name: str, payload: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Two payloads that must say the same."""
    return {"name": name, "payload": payload, "whole": whole}


def state_of(trace: Trace, i: int) -> dict[str, Any]:
    """What the explorer shows of the scheduler after step `i`."""
    state = trace.state(i)
    return {
        "waiting": state.waiting,
        "running": state.running,
        "tables": sorted(state.block_tables.items()),
        "findable": sorted(set(state.hash_index.values())),
        "refCounts": state.ref_counts,
    }


def _step(trace: Trace, i: int) -> dict[str, Any]:
    step = trace.steps[i]
    events = [event for event in trace.events if event.step == i]
    decode = step.columns.chunk.count(None)
    return {
        "phase": step.phase,
        "stop": str(step.stop),
        "decode_stop": str(step.decode_stop),
        "sentences": trace.explain(i),
        "headline": next(
            n for n, line in enumerate(trace.explain(i).split("\n")) if line.startswith(f"Step {i} ({step.phase}, ")
        ),
        "prefill": step.num_batched_tokens - decode,
        "decode": decode,
        "wasted": len(step.columns.wasted),
        "offset": 0,
        "arrived": [e.seq_id for e in events if e.kind == "arrive"],
        "ended": [e.seq_id for e in events if e.kind in ("finish", "abort")],
        "changed": sorted({e.block_id for e in events if e.kind in CHANGES}),
        "preempted": [[p.victim, p.on_behalf_of, p.blocks, p.tokens, int(p.rule == "self")] for p in step.preempted],
    }


def _rows(trace: Trace, i: int) -> list[list[Any]]:
    """[step, sequence, computed before, scheduled, chunk, of how many, sampled token, whether it was wasted]."""
    c = trace.steps[i].columns
    rows = zip(c.seq_id, c.num_computed, c.num_scheduled, c.chunk, c.token_id, strict=True)
    return [
        [i, seq_id, computed, scheduled, *(chunk or (0, 0)), token, seq_id in c.wasted]
        for seq_id, computed, scheduled, chunk, token in rows
    ]


def _order(span: Any) -> tuple[int, int, int]:
    return span.seq_id, span.start, KINDS.index(span.kind)
