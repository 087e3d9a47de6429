"""Steps against sequences: who waited, prefilled, decoded, was preempted, finished."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanoinfer.trace.spans import Span, sequence_spans
from nanoinfer.trace.trace import Trace
from nanoinfer.trace.words import counted
from nanoinfer.viz.canvas import add_text, label_steps, new_figure
from nanoinfer.viz.marks import legend, legend_height
from nanoinfer.viz.rules import SEQUENCE_LEGEND, WASTED_LEGEND, Entry
from nanoinfer.viz.theme import SMALL, Theme, get_theme
from nanoinfer.viz.timeline_rows import draw_rows, has_gaps, layout_of, merged

GAP_NOTE = ("", "gap: running, not in the batch")
ROOM = 6.0  # inches for all rows, where that leaves each at least 3 px
BELOW = 0.55  # inches for the step axis


def timeline(trace: Trace, theme: str = "light", start: int | None = None, end: int | None = None) -> Figure:
    """Draw one row per sequence that is alive between `start` and `end`.

    Args:
        trace: a recorded run.
        theme: "light" or "dark".
        start: the first step drawn; negative counts from the end, as in a slice.
        end: the first step no longer drawn.

    Raises:
        ValueError: an unknown theme, or no step between `start` and `end`.
    """
    colors = get_theme(theme)
    first, last = _window(len(trace.steps), start, end)
    spans = _spans(trace, first, last)
    layout = layout_of(spans, first, last, ROOM)
    visible = merged(spans, layout.px)
    entries = _entries(visible)
    top = 0.6 + legend_height(entries)
    title = f"Timeline: {_summary(trace, first, last, len(layout.rows))}"
    figure = new_figure(colors, top + layout.height + BELOW, title)
    legend(figure, colors, 0.5, entries)
    label_steps(draw_rows(figure, colors, visible, layout, top), colors)
    return figure


def side_by_side(trace_a: Trace, trace_b: Trace, first_difference: int | None, theme: str = "light") -> Figure:
    """Draw two timelines over one step axis, with a line where they part.

    Args:
        trace_a: drawn above.
        trace_b: drawn below.
        first_difference: the first step that differs, None if there is none.
        theme: "light" or "dark".

    Raises:
        ValueError: an unknown theme, or two traces without steps.
    """
    colors = get_theme(theme)
    _, last = _window(max(len(trace_a.steps), len(trace_b.steps)), None, None)
    sides = []
    for trace in (trace_a, trace_b):
        spans = _spans(trace, 0, last)
        layout = layout_of(spans, 0, last, ROOM / 2)
        sides.append((trace, merged(spans, layout.px), layout))
    entries = _entries([*sides[0][1], *sides[1][1]])
    top = 0.5 + legend_height(entries)
    height = top + sum(0.5 + layout.height for _, _, layout in sides) + 0.12 + BELOW
    same = "the same decisions throughout" if first_difference is None else f"they part at step {first_difference}"
    figure = new_figure(colors, height, f"Two runs of one workload: {same}")
    legend(figure, colors, 0.5, entries)
    for name, (trace, visible, layout) in zip("ab", sides, strict=True):
        axes = draw_rows(figure, colors, visible, layout, top + 0.5)
        summary = _summary(trace, 0, len(trace.steps), len(layout.rows))
        _head(axes, colors, f"{name}: {summary}", layout.height)
        if first_difference is not None:
            axes.axvline(first_difference - 0.5, color=colors.ink, linewidth=1.2, linestyle=(0, (4, 2)), zorder=10)
        top += 0.5 + layout.height + 0.06
    label_steps(axes, colors)
    return figure


def _window(steps: int, start: int | None, end: int | None) -> tuple[int, int]:
    first, last, _ = slice(start, end).indices(steps)
    if first >= last:
        raise ValueError(f"no step to draw from start={start} to end={end}: this trace has {steps} steps")
    return first, last


def _spans(trace: Trace, first: int, last: int) -> list[Span]:
    return [span for span in sequence_spans(trace) if span.start < last and span.end > first]


def _entries(spans: list[Span]) -> list[Entry]:
    wasted = [WASTED_LEGEND] if any(span.kind == "wasted" for span in spans) else []
    return [*SEQUENCE_LEGEND, *wasted, *([GAP_NOTE] if has_gaps(spans) else [])]


def _summary(trace: Trace, first: int, last: int, sequences: int) -> str:
    whole = (first, last) == (0, len(trace.steps))
    steps = counted(last, "step") if whole else f"steps {first} to {last - 1} of {len(trace.steps)}"
    return f"{counted(sequences, 'sequence')}, {steps}, policy {trace.config.policy}"


def _head(axes: Axes, theme: Theme, text: str, height: float) -> None:
    """A caption 0.1 inches above a panel of `height` inches."""
    at = (0, 1 + 0.1 / height)
    add_text(axes, theme, at, text, size=SMALL, color=theme.muted, va="bottom", transform=axes.transAxes)
