"""The explorer as the output of a notebook cell, and as a file.

    trace.explore()                  # in a notebook; needs no kernel afterwards
    trace.to_html("run.html")        # opens from disk, without a network

What a notebook stores is plain HTML: a poster, and a frame with the replay that takes its place where
scripts run. A picture and a text stand beside it for whoever shows no HTML.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from nanoinfer.explore.pack import Bookmark, checked_sequence, pack
from nanoinfer.explore.page import escaped, html_page
from nanoinfer.explore.poster import poster_png, poster_text
from nanoinfer.trace.trace import Trace

THEMES = ("auto", "light", "dark")
FIRST_HEIGHT = 900  # px of the frame until the page has told its own


class Exploration:
    """A replay that shows itself in a notebook: as HTML, as a picture and as text."""

    def __init__(
        self,
        trace: Trace,
        step: int = 0,
        select: int | None = None,
        theme: str = "auto",
        tour: Sequence[Bookmark] | None = None,
        height: int | None = None,
    ) -> None:
        if theme not in THEMES:
            raise ValueError(f"theme must be one of {', '.join(map(repr, THEMES))}, got {theme!r}")
        if height is not None and height < 1:
            raise ValueError(f"height must be a positive number of pixels, got {height}")
        self.trace = trace
        self.step = trace.step_index(step) if trace.steps else 0
        self.select = checked_sequence(trace, select)
        self.theme = theme
        self.height = height
        self._payload = pack(trace, tour)
        if self._payload["meta"]["tour"] and self.step == 0 and select is None:
            first = self._payload["meta"]["tour"][0]
            self.step, self.select = first["step"], first["select"]

    def page(self, alone: bool = True) -> str:
        """The replay as one self-contained HTML page."""
        selected = -1 if self.select is None else self.select
        state = {"trace": self._payload, "step": self.step, "selected": selected, "theme": self.theme}
        noscript = f"<pre>{escaped(self.text)}</pre>" if alone else ""
        return html_page(f"nanoinfer: {self._title}", state | {"height": self.height}, alone, noscript)

    @cached_property
    def text(self) -> str:
        """The run in figures, and the step in words."""
        return poster_text(self.trace, self.step)

    @cached_property
    def png(self) -> bytes:
        """The step as a picture."""
        return poster_png(self.trace, self.step, self.select, "dark" if self.theme == "dark" else "light")

    @cached_property
    def html(self) -> str:
        """Poster and frame. The frame shows itself and hides the poster, so without scripts the poster stays."""
        picture = base64.b64encode(self.png).decode("ascii")
        height = self.height or FIRST_HEIGHT
        return (
            '<div class="nanoinfer-explorer">'
            f'<div data-ni-poster><img alt="{escaped(self._alternative)}" style="max-width:100%" '
            f'src="data:image/png;base64,{picture}"><pre style="white-space:pre-wrap">{escaped(self.text)}</pre></div>'
            f'<iframe title="{escaped(f"nanoinfer explorer: {self._title}")}" '
            f'style="display:none;width:100%;height:{height}px;border:0" '
            f'srcdoc="{escaped(self.page(alone=False))}"></iframe></div>'
        )

    @property
    def _title(self) -> str:
        return f"{len(self.trace.steps)} steps, {len(self.trace.requests)} requests"

    @property
    def _alternative(self) -> str:
        return f"Timeline, KV blocks and queues at step {self.step}; the text below says what happened."

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        del include, exclude  # the three forms are one output: whoever reads the notebook picks
        picture = base64.b64encode(self.png).decode("ascii")
        return {"text/html": self.html, "image/png": picture, "text/plain": self.text}

    def __repr__(self) -> str:
        return f"<Exploration of {self.trace!r} at step {self.step}>"


def explore(
    trace: Trace,
    step: int = 0,
    select: int | None = None,
    theme: str = "auto",
    tour: Sequence[Bookmark] | None = None,
    height: int | None = None,
) -> Exploration:
    """The interactive replay of `trace`, as an object that shows itself at the end of a notebook cell.

    Args:
        trace: a recorded run.
        step: where it opens; negative counts from the end.
        select: a sequence to follow.
        theme: "auto" (as the notebook), "light" or "dark".
        tour: bookmarks (step, sequence to select or None, caption), visited with Back and Next.
        height: pixels; as tall as its content by default.

    Raises:
        IndexError: no such step.
        ValueError: no such sequence or theme, or a bookmark that the trace does not have.
    """
    return Exploration(trace, step, select, theme, tour, height)


def to_html(
    trace: Trace,
    path: str | Path,
    step: int = 0,
    select: int | None = None,
    theme: str = "auto",
    tour: Sequence[Bookmark] | None = None,
) -> None:
    """Write the replay to `path` as one file that opens from disk; arguments as for `explore`."""
    page = Exploration(trace, step, select, theme, tour).page()
    Path(path).write_text(page, encoding="utf-8")
