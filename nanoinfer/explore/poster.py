"""The still picture and the text that stand for an explorer where it cannot run."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from nanoinfer.trace.spans import sequence_spans
from nanoinfer.trace.text import summary
from nanoinfer.trace.trace import Trace
from nanoinfer.viz.theme import channels, get_theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110
MOST_ROWS = 60  # of the timeline; fewer steps are drawn until no more sequences are alive in them
MOST_STEPS = 600
MOST_SUMMARIZED = 20_000  # steps: above it the figures of the whole run are left out


def poster_text(trace: Trace, step: int) -> str:
    """The run in figures where it is not too long, and `step` in words."""
    if not trace.steps:
        return "A trace without steps."
    figures = summary(trace) if len(trace.steps) <= MOST_SUMMARIZED else [repr(trace)]
    return "\n".join([*figures, "", trace.explain(step)])


def poster_png(trace: Trace, step: int, select: int | None, theme: str) -> bytes:
    """Timeline, blocks and queues of `step` under each other. Needs matplotlib, as `stacked` does."""
    from nanoinfer.viz.block_map import block_map
    from nanoinfer.viz.queues import queues
    from nanoinfer.viz.timeline import timeline

    figures: list[Figure] = []
    if trace.steps:
        start, end = window(trace, step)
        figures.append(timeline(trace, theme=theme, start=start, end=end))
        holds = select is not None and select in trace.state(step).block_tables
        figures.append(block_map(trace, step, theme=theme, select=select if holds else None))
        figures.append(queues(trace, step, theme=theme))
    return stacked(figures, theme)


def window(trace: Trace, step: int) -> tuple[int, int]:
    """Steps around `step` in which a picture of the timeline stays legible."""
    spans = sequence_spans(trace)
    width = min(len(trace.steps), MOST_STEPS)
    while True:
        start = max(0, min(step - width // 2, len(trace.steps) - width))
        rows = len({span.seq_id for span in spans if span.start < start + width and span.end > start})
        if rows <= MOST_ROWS or width <= 40:
            return start, start + width
        width //= 2


def stacked(figures: list[Figure], theme: str) -> bytes:
    """One PNG of all figures, on the theme's background."""
    import numpy as np
    from matplotlib.image import imsave

    pictures = []
    for figure in figures:
        figure.set_dpi(DPI)
        figure.canvas.draw()
        pictures.append(np.asarray(figure.canvas.buffer_rgba()))  # type: ignore[attr-defined]  # an Agg canvas
    width = max([picture.shape[1] for picture in pictures], default=1)
    height = sum(picture.shape[0] for picture in pictures)
    background = [*channels(get_theme(theme).background), 255]
    page = np.full((max(height, 1), width, 4), background, dtype=np.uint8)
    top = 0
    for picture in pictures:
        page[top : top + picture.shape[0], : picture.shape[1]] = picture
        top += picture.shape[0]
    buffer = BytesIO()
    imsave(buffer, page, format="png")
    return buffer.getvalue()
