"""The explorer's module and page: the files of `web/`, put together.

There is no build step. The files are plain JavaScript that shares one scope; they are joined in the
order of MODULE, each after what it uses. Colours come from `nanoinfer.viz.theme`, so that the explorer
and the figures cannot drift apart.
"""

from __future__ import annotations

import html
import json
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from nanoinfer.viz.theme import DARK, LIGHT, OWNERS, mix

MODULE = (
    "dom.js",  # elements, icons, canvases
    "theme.js",  # light and dark
    "data.js",  # the payload, unpacked
    "bars.js",  # who was in which state when
    "fold.js",  # the scheduler's state after any frame
    "view.js",  # what is looked at; zoom window; frames to pixels
    "tooltip.js",
    "strip.js",  # tokens and blocks of the whole run, minimap
    "rows.js",  # order and height of the timeline's rows
    "timeline.js",
    "rowpaint.js",  # its bars and its axis
    "gestures.js",  # pointer, wheel and keys on the timeline
    "blocks.js",  # the block map
    "blockpaint.js",  # its cells
    "queues.js",
    "sequence.js",  # the selected sequence
    "why.js",  # the step in words
    "steptable.js",
    "transport.js",  # slider, buttons, play, keys
    "tour.js",
    "explorer.js",  # all parts on one page: render()
    "comparelock.js",  # two recordings at the same step or time
    "comparepair.js",  # two views that move together
    "compareparts.js",  # what only a comparison has
    "compare.js",  # renderComparison()
)
BOOT = "boot.js"  # a page without a kernel
LIVE = ("livebar.js", "livelist.js", "live.js")  # over a running engine; needs a kernel

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="ni-root"></main>
<noscript>{noscript}</noscript>
<script type="application/json" id="ni-state">{state}</script>
<script type="module">{script}</script>
</body>
</html>
"""
EMBEDDED = "html, body { margin: 0; background: transparent; }"
ALONE = f"""
:root {{ color-scheme: light dark; background: {LIGHT.surface}; }}
:root:has([data-theme="dark"]) {{ background: {mix(DARK.background, "#000000", 0.35)}; }}
body {{ margin: 0 auto; max-width: 1240px; padding: 16px; }}
body:has(.ni-comparison) {{ max-width: 1600px; }}
"""


@cache
def _scope() -> str:
    """Everything but the export and the boot code."""
    palettes = {theme.name: asdict(theme) for theme in (LIGHT, DARK)}
    constants = {"PALETTES": palettes, "OWNERS": OWNERS, "CSS": _read("explorer.css")}
    lines = [f"const {name} = {script_json(value)};" for name, value in constants.items()]
    return "\n".join([*lines, *map(_read, MODULE)])


def widget_module() -> str:
    """The ES module that anywidget loads."""
    return f"{_scope()}\nexport default {{ render }};\n"


@cache
def live_module() -> str:
    """The ES module of the live explorer."""
    style = f"const LIVE_CSS = {script_json(_read('live.css'))};"
    entry = "export default { initialize: initializeLive, render: renderLive };"
    return "\n".join([_scope(), style, *map(_read, LIVE), entry, ""])


def html_page(title: str, state: dict[str, Any], alone: bool, noscript: str = "") -> str:
    """A page that needs nothing else.

    Args:
        title: of the window.
        state: the model's values: "trace", "step" and "selected", or "comparison"; "theme", "height" if it is fixed.
        alone: whether it is a file of its own, not a frame in a notebook.
        noscript: markup shown where scripts do not run.
    """
    script = f"{_scope()}\n{_read(BOOT)}"
    if "</script" in script.lower() or "<!--" in script:
        raise RuntimeError("the explorer's source would end its own script element")
    style = ALONE if alone else EMBEDDED
    return PAGE.format(
        title=escaped(title), style=style, noscript=noscript, state=script_json(state), script=f"\n{script}\n"
    )


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII only, so no line separators that JavaScript would see
    return text.replace("<", "\\u003c")


def escaped(text: str) -> str:
    """`text` for HTML, attributes included."""
    return html.escape(text, quote=True)


def _read(name: str) -> str:
    return files("nanoinfer.explore").joinpath("web", name).read_text(encoding="utf-8")
