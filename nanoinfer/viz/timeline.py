"""Steps against sequences: who waited, prefilled, decoded, was preempted, finished."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanoinfer.trace.spans import Span, sequence_spans
from nanoinfer.trace.trace import Trace
from nanoinfer.trace.words import counted
from nanoinfer.viz.canvas import Rect, add_rects, add_text, every, label_steps, new_figure, plot, text_width
from nanoinfer.viz.marks import legend, legend_height, sequence_mark
from nanoinfer.viz.rules import DRAW_ORDER, HIT_SHARE, SEQUENCE_LEGEND, WASTED_LEGEND, Entry
from nanoinfer.viz.theme import MARGIN, PX, SMALL, TINY, WIDTH, Theme, get_theme, ink_on

GAP_NOTE = ("", "gap: running, not in the batch")
ROOM = 6.0  # inches for all rows, where that leaves each at least 3 px
TALLEST = 20.0  # inches of rows, reached by about 660 sequences at 3 px
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


# ---- the rows: where every span goes and how it is drawn ----------------------------------------


@dataclass(frozen=True)
class Layout:
    """Where things go: steps `start` to `end - 1` in `width` inches, rows of `row` inches.

    `rows` is the row of every sequence, `hits` says which (sequence, step) began with a prefix hit.
    """

    start: int
    end: int
    width: float
    row: float
    rows: dict[int, int]
    hits: frozenset[tuple[int, int]]

    @property
    def step(self) -> float:
        """Inches of one step."""
        return self.width / (self.end - self.start)

    @property
    def height(self) -> float:
        """Inches of all rows."""
        return self.row * max(len(self.rows), 1)

    @property
    def px(self) -> float:
        """Steps in one pixel."""
        return PX / self.step

    @property
    def bar(self) -> float:
        """The share of its row that a full-height bar takes."""
        return 0.72 if self.row > 0.1 else 0.85 if self.row > 0.05 else 1.0

    def extent(self, span: Span) -> tuple[float, float]:
        """Left and right edge on the step axis, at least a pixel apart. Step i is drawn from i - 0.5 to i + 0.5."""
        left, right = span.start - 0.5, span.end - 0.5
        splits = self.step >= 6 * PX  # else a hit is put before the cell that it has no room in
        if span.kind == "hit":
            left, right = (left, left + HIT_SHARE) if splits else (left - 3 * self.px, left)
        elif span.kind == "prefill" and splits and (span.seq_id, span.start) in self.hits:
            left += HIT_SHARE
        elif span.kind == "finished":
            left = right - 2 * self.px
        left, right = max(left, self.start - 0.5), min(max(right, left + self.px), self.end - 0.5)
        return left, right

    def rect(self, span: Span, height: float) -> Rect:
        """The bar of `span`, `height` rows high."""
        left, right = self.extent(span)
        return left, self.rows[span.seq_id] - height / 2, right - left, height


def layout_of(spans: list[Span], first: int, last: int, room: float) -> Layout:
    """Rows for all of `spans` in about `room` inches: at least 3 px each, unless that would exceed 20 inches."""
    ids = sorted({span.seq_id for span in spans})
    left = MARGIN + max((text_width(f"seq {i}", SMALL) for i in ids[-1:]), default=0.3) + 0.1
    count = max(len(ids), 1)
    row = min(0.26, max(0.03, room / count), TALLEST / count)
    hits = frozenset((span.seq_id, span.start) for span in spans if span.kind == "hit")
    rows = {seq_id: y for y, seq_id in enumerate(ids)}
    return Layout(first, last, WIDTH - left - MARGIN, row, rows, hits)


def draw_rows(figure: Figure, theme: Theme, spans: list[Span], layout: Layout, top: float) -> Axes:
    """The panel with all `spans`, `top` inches from the top of the figure."""
    axes = plot(figure, theme, WIDTH - MARGIN - layout.width, top, layout.width, layout.height)
    axes.set(xlim=(layout.start - 0.5, layout.end - 0.5), ylim=(len(layout.rows) - 0.5, -0.5))
    _label_rows(axes, theme, list(layout.rows), layout.row)
    groups: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        groups[span.kind].append(span)
    for kind in DRAW_ORDER:
        _draw_kind(axes, theme, kind, groups[kind], layout)
    return axes


def merged(spans: list[Span], px: float) -> list[Span]:
    """`spans` with decode runs of a sequence joined where less than a pixel parts them."""
    result: list[Span] = []
    last_run: dict[int, int] = {}  # index in result of a sequence's latest decode run
    for span in spans:
        at = last_run.get(span.seq_id)
        if span.kind == "decode" and at is not None and span.start - result[at].end < px and px > 1:
            joined = result[at]
            result[at] = joined._replace(end=span.end, tokens=joined.tokens + span.tokens)
            continue
        if span.kind == "decode":
            last_run[span.seq_id] = len(result)
        result.append(span)
    return result


def has_gaps(spans: list[Span]) -> bool:
    """Whether a sequence stays out of a step between two of its spans, which are in order of time."""
    return any(a.seq_id == b.seq_id and a.end < b.start for a, b in pairwise(spans))


def _label_rows(axes: Axes, theme: Theme, ids: list[int], row: float) -> None:
    """Names at the left, as many as fit, and a faint band behind every other group of rows."""
    group = every(row, 0.13)
    axes.set_yticks(range(0, len(ids), group), [f"seq {ids[y]}" for y in range(0, len(ids), group)])
    left, right = axes.get_xlim()
    bands = [(left, y - 0.5, right - left, min(group, len(ids) - y)) for y in range(0, len(ids), 2 * group)]
    add_rects(axes, bands, "bands", facecolors=theme.surface, zorder=0)


def _draw_kind(axes: Axes, theme: Theme, kind: str, spans: list[Span], layout: Layout) -> None:
    mark = sequence_mark(theme, kind)
    height = max(mark.height * layout.bar, min(1.0, PX / layout.row))
    style = dict(mark.style)
    if kind == "prefill" and layout.step > 4 * PX:
        style |= {"edgecolors": theme.background, "linewidths": 0.7}  # the hairline between chunks
    elif layout.row < 0.08 and "linewidths" in style:
        style["linewidths"] = 0.5
    rects = [layout.rect(span, height) for span in spans]
    add_rects(axes, rects, kind, zorder=2 + DRAW_ORDER.index(kind), **style)
    if kind in ("prefill", "hit") and layout.row > 0.12:
        color = ink_on(theme.prefill) if kind == "prefill" else theme.prefill
        _write_tokens(axes, theme, color, spans, layout)


def _write_tokens(axes: Axes, theme: Theme, color: str, spans: list[Span], layout: Layout) -> None:
    """The token count in every bar that has room for it."""
    for span in spans:
        left, right = layout.extent(span)
        if text_width(str(span.tokens), TINY) + 2 * PX <= (right - left) * layout.step:
            at = ((left + right) / 2, layout.rows[span.seq_id])
            style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 9}
            add_text(axes, theme, at, str(span.tokens), size=TINY, color=color, gid=f"tokens-{span.kind}", **style)
