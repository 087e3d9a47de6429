"""Two traces of one workload on one page, held at the same step or at the same time.

    compare(a, b).explore()                  # in a notebook; needs no kernel afterwards
    compare(a, b).to_html("both.html")       # opens from disk, without a network

The page has the parts of two replays side by side, one row of controls for both, where and how the
traces first differ, and the metrics of both. The state it is made from:

    sides        of a and b: {"name", "trace": the payload of `pack`}; frames are equally many steps in both
    clock        columns "a" and "b": when each frame started; `ends`: when each side's last step ended
    unit         of the clock, None where the two clocks count different things
    difference   {"step", "frame", "text"}; step and frame are None if nothing differs
    metrics      rows of text, see `metrics_rows`
"""

from __future__ import annotations

from typing import Any

from nanoinfer.explore.columns import Columns
from nanoinfer.explore.comparison_words import difference_text, metrics_rows, side_names
from nanoinfer.explore.frames import Frames, frames_of
from nanoinfer.explore.pack import Packer
from nanoinfer.explore.poster import MOST_STEPS, stacked, window
from nanoinfer.explore.shell import RichPage
from nanoinfer.trace.compare import Comparison
from nanoinfer.trace.trace import Trace


class ComparisonPage(RichPage):
    """Two replays that move together; `Comparison.explore` explains its arguments."""

    def __init__(self, comparison: Comparison, theme: str = "auto", height: int | None = None) -> None:
        super().__init__(theme, height)
        self.comparison = comparison
        a, b = comparison.trace_a, comparison.trace_b
        self.title = f"two runs of {len(a.requests)} requests, {len(a.steps)} and {len(b.steps)} steps"
        self.alternative = "The timelines of both runs; the text below says where they part."
        self._told = payload(comparison)

    def _state(self) -> dict[str, Any]:
        return {"comparison": self._told}

    def _text(self) -> str:
        return comparison_text(self.comparison)

    def _png(self, theme: str) -> bytes:
        return comparison_png(self.comparison, theme)

    def __repr__(self) -> str:
        return f"<ComparisonPage of {self.comparison.trace_a!r} and {self.comparison.trace_b!r}>"


def payload(comparison: Comparison) -> dict[str, Any]:
    """What the page is made from; see the top of this file."""
    traces = comparison.trace_a, comparison.trace_b
    size = max(frames_of(trace).size for trace in traces)
    units = {trace.header.clock_unit for trace in traces}
    first = comparison.first_difference
    names = side_names(*traces)
    return {
        "sides": [{"name": name, "trace": _packed(trace, size)} for name, trace in zip(names, traces, strict=True)],
        "clock": _clock(traces, size),
        "ends": [_end(trace) for trace in traces],
        "unit": units.pop() if len(units) == 1 else None,
        "difference": {
            "step": first,
            "frame": None if first is None else first // size,
            "text": difference_text(comparison),
        },
        "metrics": metrics_rows(comparison),
    }


def _packed(trace: Trace, size: int) -> dict[str, Any]:
    packer = Packer(trace, size)
    return packer.header() | {"chunks": [packer.chunk()]}


def _clock(traces: tuple[Trace, Trace], size: int) -> dict[str, Any]:
    """When every frame started, by side."""
    columns = Columns()
    for name, trace in zip("ab", traces, strict=True):
        frames = Frames(len(trace.steps), size)
        columns.numbers(name, [float(trace.steps[frames.first_step(f)].clock) for f in range(frames.count)])
    return columns.encode()


def _end(trace: Trace) -> float:
    """The clock at the end of the last step."""
    return trace.steps[-1].clock + trace.steps[-1].timing["duration"] if trace.steps else 0.0


# ---- without scripts ----------------------------------------------------------------------------


def comparison_text(comparison: Comparison) -> str:
    """Who is who, where they part, both explanations of that step, and the figures."""
    traces = comparison.trace_a, comparison.trace_b
    names = [f"{side}: {name}" for side, name in zip("ab", side_names(*traces), strict=True)]
    lines = [*names, difference_text(comparison)]
    first = comparison.first_difference
    if first is not None:
        for side, trace in zip("ab", traces, strict=True):
            told = trace.explain(first) if first < len(trace.steps) else "has ended"
            lines += ["", f"{side}: {told}"]
    rows = [("figure", "unit", "a", "b", "b / a")]
    rows += [(r["name"], r["unit"], r["a"], r["b"], r["ratio"]) for r in metrics_rows(comparison) if not r["more"]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", *table])


def comparison_png(comparison: Comparison, theme: str) -> bytes:
    """Both timelines; of long traces, the steps around the first difference. Needs matplotlib."""
    from nanoinfer.viz.timeline import side_by_side, timeline

    traces = comparison.trace_a, comparison.trace_b
    first = comparison.first_difference
    if not any(trace.steps for trace in traces):
        return stacked([], theme)
    if max(len(trace.steps) for trace in traces) <= MOST_STEPS:
        return stacked([side_by_side(*traces, first, theme=theme)], theme)
    figures = []
    for trace in traces:
        if trace.steps:
            start, end = window(trace, min(first or 0, len(trace.steps) - 1))
            figures.append(timeline(trace, theme, start, end))
    return stacked(figures, theme)
