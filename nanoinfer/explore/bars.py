"""The bars of the timeline: every sequence's spans, in frames."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from nanoinfer.explore.changes import put_tuples
from nanoinfer.explore.columns import Columns
from nanoinfer.explore.frames import Frames
from nanoinfer.trace.spans import KINDS, Span, sequence_spans
from nanoinfer.trace.trace import Trace

COMPUTED = ("prefill", "decode", "wasted")


class Bar(NamedTuple):
    """One sequence in one state during frames `start` to `start + length - 1`.

    Attributes:
        kind: index into `spans.KINDS`.
        tokens: computed in it, or found in the cache.
        computed: tokens in the KV cache before it ("prefill", "decode" and "wasted" of single steps).
        chunk, chunks: 1-based number of a prefill chunk and of how many.
        spans: how many spans it stands for: more than one only where a frame is several steps.
    """

    seq: int
    kind: int
    start: int
    length: int
    tokens: int
    computed: int
    chunk: int
    chunks: int
    spans: int


def put_bars(columns: Columns, trace: Trace, frames: Frames, since: int = 0) -> None:
    """Put every bar that ends in frame `since` or later.

    A reader that already has bars drops its own that end there or later: an open one comes again, longer.
    """
    spans = sequence_spans(trace)
    bars = _bars(trace, spans) if frames.size == 1 else _bucketed(spans, frames)
    kept = [bar for bar in bars if bar.start + bar.length >= since]
    put_tuples(columns, [f"bar_{name}" for name in Bar._fields], kept)


def _bars(trace: Trace, spans: list[Span]) -> list[Bar]:
    """One bar per span, with what the row of its first step says."""
    rows = _first_rows(trace, spans)
    bars = []
    for seq_id, kind, start, end, tokens in spans:
        found = rows.get((seq_id, start)) if kind in COMPUTED else None
        computed, (chunk, chunks) = found or (0, (0, 0))
        bars.append(Bar(seq_id, KINDS.index(kind), start, end - start, tokens, computed, chunk, chunks, 1))
    return bars


def _first_rows(trace: Trace, spans: list[Span]) -> dict[tuple[int, int], tuple[int, tuple[int, int]]]:
    """(tokens computed before, chunk) by sequence and step, of the steps in which a bar begins."""
    starting: defaultdict[int, set[int]] = defaultdict(set)
    for span in spans:
        if span.kind in COMPUTED:
            starting[span.start].add(span.seq_id)
    found = {}
    for step, seq_ids in starting.items():
        c = trace.steps[step].columns
        for seq_id, computed, chunk in zip(c.seq_id, c.num_computed, c.chunk, strict=True):
            if seq_id in seq_ids:
                found[seq_id, step] = (computed, chunk or (0, 0))
    return found


def _bucketed(spans: list[Span], frames: Frames) -> list[Bar]:
    """Bars of whole frames; those of one sequence and kind that touch become one."""
    open_bars: dict[tuple[int, int], Bar] = {}
    done: list[Bar] = []
    for seq_id, kind, start, end, tokens in spans:
        first, last = frames.of_step(start), frames.of_step(end - 1)
        key = (seq_id, KINDS.index(kind))
        bar = open_bars.get(key)
        if bar and first <= bar.start + bar.length and kind != "finished":
            length = max(bar.length, last + 1 - bar.start)
            open_bars[key] = bar._replace(length=length, tokens=bar.tokens + tokens, spans=bar.spans + 1)
            continue
        if bar:
            done.append(bar)
        open_bars[key] = Bar(*key, first, last + 1 - first, tokens, 0, 0, 0, 1)
    return sorted([*done, *open_bars.values()], key=lambda bar: (bar.seq, bar.start, bar.kind))
