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
from html import escape
from pathlib import Path
from typing import Any

from nanoinfer.explore.pack import Bookmark, checked_sequence, pack
from nanoinfer.explore.page import html_page
from nanoinfer.explore.poster import poster_png, poster_text
from nanoinfer.extras import missing
from nanoinfer.trace.trace import Trace

THEMES = ("auto", "light", "dark")
WITHOUT_KERNEL = (
    "This is the live explorer of an engine. Its buttons need a running kernel: run the cell to use it. "
    "A replay that needs none is shown by the trace's own explore()."
)
FIRST_HEIGHT = 900  # px of the frame until the page has told its own


class RichPage:
    """A page that shows itself in a notebook: as HTML, as a picture and as text. Subclasses say what is on it."""

    title: str  # without the name of the package
    alternative: str  # what the picture shows, in a sentence

    def __init__(self, theme: str, height: int | None) -> None:
        if theme not in THEMES:
            raise ValueError(f"theme must be one of {', '.join(map(repr, THEMES))}, got {theme!r}")
        if height is not None and height < 1:
            raise ValueError(f"height must be a positive number of pixels, got {height}")
        self.theme = theme
        self.height = height

    def _state(self) -> dict[str, Any]:
        """What the page shows."""
        raise NotImplementedError

    def _text(self) -> str:
        raise NotImplementedError

    def _png(self, theme: str) -> bytes:
        raise NotImplementedError

    def page(self, alone: bool = True) -> str:
        """One self-contained HTML page."""
        noscript = f"<pre>{escape(self.text)}</pre>" if alone else ""
        state = self._state() | {"theme": self.theme, "height": self.height}
        return html_page(f"nanoinfer: {self.title}", state, alone, noscript)

    def write(self, path: str | Path) -> None:
        """Write the page to `path` as one file that opens from disk, without a network."""
        Path(path).write_text(self.page(), encoding="utf-8")

    @cached_property
    def text(self) -> str:
        """What is left of the page where there are no pictures."""
        return self._text()

    @cached_property
    def png(self) -> bytes | None:
        """What is left of the page where nothing moves; None without matplotlib, and then the text stands alone."""
        return None if missing("matplotlib") else self._png("dark" if self.theme == "dark" else "light")

    @cached_property
    def html(self) -> str:
        """Poster and frame. The frame shows itself and hides the poster, so without scripts the poster stays."""
        height = self.height or FIRST_HEIGHT
        style, source = "max-width:100%", f"data:image/png;base64,{self._picture()}"
        image = f'<img alt="{escape(self.alternative)}" style="{style}" src="{source}">' if self.png else ""
        return (
            f'<div class="nanoinfer-explorer"><div data-ni-poster>{image}'
            f'<pre style="white-space:pre-wrap;font-family:monospace">{escape(self.text)}</pre></div>'
            f'<iframe title="{escape(f"nanoinfer explorer: {self.title}")}" '
            f'style="display:none;width:100%;height:{height}px;border:0" '
            f'srcdoc="{escape(self.page(alone=False))}"></iframe></div>'
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        del include, exclude  # all forms are one output: the program that shows the notebook picks
        picture = {"image/png": self._picture()} if self.png else {}
        return {"text/html": self.html, **picture, "text/plain": self.text}

    def _picture(self) -> str:
        """`png` as text."""
        return base64.b64encode(self.png or b"").decode("ascii")


class Exploration(RichPage):
    """The replay of one trace; `Trace.explore` explains its arguments and errors."""

    def __init__(
        self,
        trace: Trace,
        step: int = 0,
        select: int | None = None,
        theme: str = "auto",
        tour: Sequence[Bookmark] | None = None,
        height: int | None = None,
    ) -> None:
        super().__init__(theme, height)
        self.trace = trace
        self.step = trace.step_index(step) if trace.steps else 0
        self.select = checked_sequence(trace, select)
        self._payload = pack(trace, tour)
        if self._payload["meta"]["tour"] and self.step == 0 and select is None:
            first = self._payload["meta"]["tour"][0]
            self.step, self.select = first["step"], first["select"]
        self.title = f"{len(trace.steps)} steps, {len(trace.requests)} requests"
        self.alternative = f"Timeline, KV blocks and queues at step {self.step}; the text below says what happened."

    def _state(self) -> dict[str, Any]:
        selected = -1 if self.select is None else self.select
        return {"trace": self._payload, "step": self.step, "selected": selected}

    def _text(self) -> str:
        return poster_text(self.trace, self.step)

    def _png(self, theme: str) -> bytes:
        return poster_png(self.trace, self.step, self.select, theme)

    def __repr__(self) -> str:
        return f"<Exploration of {self.trace!r} at step {self.step}>"


def live_forms(trace: Trace, queued: list[str], theme: str) -> dict[str, Any]:
    """What stands for a live explorer where no kernel runs: the replay up to now, or before any step the `queued`."""
    if trace.steps:
        replay = Exploration(trace, step=-1, theme=theme)
        html = f"<p>{escape(WITHOUT_KERNEL)} Recorded when it was shown:</p>{replay.html}"
        words = {"text/html": html, "text/plain": f"{WITHOUT_KERNEL}\n\n{replay.text}"}
        return replay._repr_mimebundle_() | words
    lines = "\n".join(["No step had run when it was shown.", *queued])
    html = f'<p>{escape(WITHOUT_KERNEL)}</p><pre style="white-space:pre-wrap">{escape(lines)}</pre>'
    return {"text/html": html, "text/plain": f"{WITHOUT_KERNEL}\n\n{lines}"}
