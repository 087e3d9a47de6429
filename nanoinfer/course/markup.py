"""Sentences of a notebook as HTML."""

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
