"""The shape and colour of every state, and legends made of the same marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from nanoinfer.viz.canvas import Rects, add_rects, add_text, drawing, text_width
from nanoinfer.viz.rules import BLOCK_KINDS, HEIGHTS, Entry
from nanoinfer.viz.theme import LABEL, MARGIN, PX, WIDTH, Theme, ink_on

SWATCH_WIDTH, SWATCH_HEIGHT = 0.24, 0.13  # inches
LINE_HEIGHT = 0.22  # of a legend, inches


@dataclass(frozen=True)
class Mark:
    """How a state looks: `height` as a share of the row, the rest as matplotlib's options of a patch."""

    height: float
    style: dict[str, Any]


def sequence_mark(theme: Theme, kind: str) -> Mark:
    """The mark of a sequence's state. No two kinds share a shape, whatever their colours."""
    fill, line = "facecolors", "edgecolors"
    styles: dict[str, dict[str, Any]] = {
        "waiting": {fill: theme.waiting},
        "decode": {fill: theme.decode},
        "prefill": {fill: theme.prefill},
        "hit": {fill: theme.background, line: theme.prefill, "linewidths": 1.0},
        "preempted": {fill: theme.background, line: theme.preempted, "linewidths": 0.8, "hatch": "//////"},
        "finished": {fill: theme.finished},
        "wasted": {fill: theme.background, line: theme.decode, "linewidths": 1.0},
    }
    return Mark(HEIGHTS[kind], styles[kind])


def block_mark(theme: Theme, kind: str) -> Mark:
    """The mark of a KV block's state; "cached" gets a centre dot, "shared" a count, "selected" lacks a corner."""
    fill, line = "facecolors", "edgecolors"
    marks = {
        "empty": Mark(1.0, {fill: theme.empty, line: theme.hairline, "linewidths": 0.6}),
        "cached": Mark(1.0, {fill: theme.cached}),
        "private": Mark(1.0, {fill: theme.private}),
        "shared": Mark(1.0, {fill: theme.shared, line: theme.ink, "linewidths": 1.4}),
        "selected": Mark(1.0, {fill: theme.selected}),
        "changed": Mark(1.0, {fill: "none", line: theme.ink, "linewidths": 1.1, "linestyles": [(0, (2.5, 1.6))]}),
    }
    return marks[kind]


def legend_lines(entries: Sequence[Entry], width: float = WIDTH - 2 * MARGIN) -> list[list[tuple[float, Entry]]]:
    """`entries` with their left edges in inches, broken into lines no wider than `width`."""
    lines: list[list[tuple[float, Entry]]] = [[]]
    x = 0.0
    for entry in entries:
        needed = (SWATCH_WIDTH + 0.07 if entry[0] else 0) + text_width(entry[1], LABEL)
        if lines[-1] and x + needed > width:
            lines.append([])
            x = 0.0
        lines[-1].append((x, entry))
        x += needed + 0.2
    return lines


def legend_height(entries: Sequence[Entry]) -> float:
    """Inches that `legend` takes."""
    return LINE_HEIGHT * len(legend_lines(entries))


def legend(figure: Figure, theme: Theme, top: float, entries: Sequence[Entry]) -> Axes:
    """Swatches with labels, `top` inches from the top of the figure; an entry without a mark is words only."""
    axes = drawing(figure, MARGIN, top, WIDTH - 2 * MARGIN, legend_height(entries))
    for row, line in enumerate(legend_lines(entries)):
        middle = (row + 0.5) * LINE_HEIGHT
        for x, (kind, label) in line:
            if kind:
                swatch(axes, theme, kind, x, middle)
            left = x + (SWATCH_WIDTH + 0.07 if kind else 0)
            add_text(axes, theme, (left, middle), label, color=theme.muted)
    return axes


def swatch(axes: Axes, theme: Theme, kind: str, x: float, middle: float) -> None:
    """The mark of `kind` in a drawing panel, at `x` and centred on `middle` (inches)."""
    if kind == "preemption":
        add_preemptions(axes, theme, [x + SWATCH_WIDTH / 2], middle)
        return
    is_block = kind in (*BLOCK_KINDS, "selected", "changed")
    mark = block_mark(theme, kind) if is_block else sequence_mark(theme, kind)
    width = 2 * PX if kind == "finished" else SWATCH_HEIGHT + 0.02 if is_block else SWATCH_WIDTH
    height = SWATCH_HEIGHT * mark.height + (0.02 if is_block else 0)
    left = x + (SWATCH_WIDTH - width) / 2
    add_rects(axes, [(left, middle - height / 2, width, height)], f"legend-{kind}", **mark.style)
    if kind == "cached":
        add_dots(axes, theme, [(left, middle - height / 2, width, height)], "legend-dot")
    elif kind == "selected":
        add_corners(axes, theme, [(left, middle - height / 2, width, height)], "legend-corner")


def add_preemptions(axes: Axes, theme: Theme, xs: Sequence[float], y: float) -> None:
    """A downward triangle at every x."""
    style: dict[str, Any] = {"marker": "v", "s": 16, "linewidths": 0, "gid": "preemptions", "zorder": 4}
    axes.scatter(xs, [y] * len(xs), color=theme.preempted, clip_on=False, **style)


def add_dots(axes: Axes, theme: Theme, cells: Rects, gid: str) -> None:
    """A centre dot in each of `cells` of a drawing panel; a square one, so that tiny cells keep it sharp."""
    dots = []
    for x, y, w, h in cells:
        side = max(0.2 * min(w, h), min(1.5 * PX, w))
        dots.append((x + (w - side) / 2, y + (h - side) / 2, side, side))
    add_rects(axes, dots, gid, facecolors=theme.ink, zorder=5)


def add_corners(axes: Axes, theme: Theme, cells: Rects, gid: str) -> None:
    """The upper left corner that each of `cells`, filled as selected, lacks: it tells them without colour."""
    x, y, w, _ = np.asarray(cells, dtype=float).reshape(-1, 4).T
    side = np.maximum(0.26 * w, np.minimum(2.5 * PX, w))
    corners = np.stack([np.stack(point, -1) for point in ((x, y), (x + side, y), (x, y + side))], 1)
    collection = PolyCollection(list(corners), facecolors=ink_on(theme.selected), linewidths=0.0, zorder=4)
    collection.set_gid(gid)
    axes.add_collection(collection, autolim=False)
