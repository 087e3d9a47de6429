"""A figure that a notebook shows by itself, and panels placed in inches.

Nothing here touches pyplot: a figure belongs to whoever holds it, is shown once, and is freed with
its last reference. Panels are placed in inches from the top left corner, so that text sizes, pixel
widths and layouts can be computed exactly instead of left to chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator

from nanoinfer.viz.theme import FONT, LABEL, MARGIN, SMALL, TITLE, WIDTH, Theme

Rect = tuple[float, float, float, float]  # left, low y, width, height, in data units
Rects = Sequence[Rect] | np.ndarray[Any, Any]


class NotebookFigure(Figure):
    """A Figure that is its own rich output.

    A plain Figure shows as a picture only once pyplot has set up the notebook's inline backend. This
    one brings its own PNG, at twice the nominal resolution and told to show at half its size.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=2 * self.dpi, facecolor=self.get_facecolor())
        width, height = (round(inches * self.dpi) for inches in self.get_size_inches())
        return buffer.getvalue(), {"width": width, "height": height}


def new_figure(theme: Theme, height: float, title: str, width: float = WIDTH) -> NotebookFigure:
    """An empty styled figure of `width` x `height` inches with its title in the top left corner."""
    figure = NotebookFigure(figsize=(width, height), dpi=100, facecolor=theme.background)
    FigureCanvasAgg(figure)
    add_text(figure, theme, (MARGIN / width, 1 - MARGIN / height), title, size=TITLE, weight="bold", va="top")
    return figure


def add_text(
    where: Figure | Axes,
    theme: Theme,
    at: tuple[float, float],
    text: str,
    *,
    size: float = LABEL,
    color: str | None = None,
    weight: str = "normal",
    **options: Any,
) -> Text:
    """Text in the project's font at `at`, in the coordinates of `where`; `$` is a plain character."""
    style: dict[str, Any] = {"va": "center", "parse_math": False} | options
    color = color or theme.ink
    return where.text(*at, text, fontfamily=FONT, fontsize=size, color=color, fontweight=weight, **style)


def drawing(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """A bare panel whose data coordinates are inches from its top left corner, y downwards."""
    axes = _place(figure, left, top, width, height)
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return axes


def plot(figure: Figure, theme: Theme, left: float, top: float, width: float, height: float) -> Axes:
    """A panel for data over steps: whole-number ticks, no box, quiet rules."""
    axes = _place(figure, left, top, width, height)
    axes.set_facecolor(theme.background)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set(color=theme.hairline, linewidth=0.8)
    axes.tick_params(length=0, labelsize=SMALL, labelcolor=theme.muted, labelfontfamily=FONT, pad=4)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(2, integer=True, min_n_ticks=1))
    return axes


def label_steps(axes: Axes, theme: Theme) -> None:
    """Name the x axis."""
    axes.set_xlabel("step", fontsize=SMALL, color=theme.muted, fontfamily=FONT, labelpad=2)


def _place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    full_width, full_height = figure.get_size_inches()
    bottom = full_height - top - height
    box = (left / full_width, bottom / full_height, width / full_width, height / full_height)
    return figure.add_axes(box)


def add_rects(axes: Axes, rects: Rects, gid: str, **style: Any) -> PolyCollection:
    """All `rects` as one artist named `gid`; one artist per cell would be too slow for long traces."""
    corners = np.asarray(rects, dtype=float).reshape(-1, 4)
    x, y, w, h = corners.T
    polygons = np.stack([np.stack(pair, -1) for pair in ((x, y), (x + w, y), (x + w, y + h), (x, y + h))], 1)
    collection = PolyCollection(list(polygons), **({"linewidths": 0.0, "clip_on": axes.axison} | style))
    collection.set_gid(gid)
    axes.add_collection(collection, autolim=False)
    return collection


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = LABEL, weight: str = "normal") -> float:
    """Width of one line of `text` in inches, known without drawing it."""
    font = FontProperties(family=FONT, size=size, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def every(spacing: float, least: float) -> int:
    """How many items one label must stand for, so that labels are `least` apart: 1, 2, 5, 10, 20, 50, ..."""
    scale = 1
    while True:
        for factor in (1, 2, 5):
            if factor * scale * spacing >= least:
                return factor * scale
        scale *= 10
