"""Sentences of a notebook as HTML, and hints that stay closed until a reader opens them."""

from __future__ import annotations

import html
import re


def inline(text: str) -> str:
    """`text` as HTML: escaped, with `code` between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def paragraphs(text: str) -> str:
    """`text` as HTML paragraphs, which empty lines part."""
    return "".join(f"<p>{inline(part.strip())}</p>" for part in re.split(r"\n\s*\n", text.strip()))


def details(title: str, body: str) -> str:
    """A box with `body` (HTML) that is closed at first."""
    return (
        '<details style="margin:4px 0;padding:6px 12px;border:1px solid rgba(128,128,128,0.5);border-radius:6px">'
        f'<summary style="cursor:pointer"><b>{inline(title)}</b></summary>{body}</details>'
    )


class Hint:
    """A text that a notebook shows closed, with only its title to see."""

    def __init__(self, text: str, title: str) -> None:
        self.text, self.title = text, title

    def _repr_html_(self) -> str:
        return details(self.title, paragraphs(self.text))

    def __repr__(self) -> str:
        return f"<{self.title}: open it in a notebook>"


def hint(text: str, title: str = "Hint") -> Hint:
    """A closed box with `text`, for the end of a notebook cell. `code` stands between backticks."""
    return Hint(text, title)
