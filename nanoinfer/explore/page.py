"""The explorer's page, and its module for a live engine.

`web/` holds ES modules, which `modules.joined` puts together as one: there is no build step. What they share with
the pictures of `nanoinfer.viz` comes to them as the module `constants.js`, which exists only here; `constants.d.ts`
beside them declares what is in it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from nanoinfer.explore.modules import joined
from nanoinfer.viz import rules
from nanoinfer.viz.theme import DARK, LIGHT, OWNERS, ink_on, mix

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


def constants(*styles: str) -> str:
    """The source of `constants.js`: palettes, what `viz.rules` rules, and the text of the `styles` as CSS."""
    palettes = {theme.name: asdict(theme) for theme in (LIGHT, DARK)}
    fills = {color for palette in palettes.values() for color in palette.values() if color.startswith("#")}
    values: dict[str, Any] = {
        "PALETTES": palettes,
        "OWNERS": OWNERS,
        "INKS": {fill: ink_on(fill) for fill in sorted(fills.union(OWNERS))},
        "CSS": "".join(map(_read, styles)),
    } | {name: value for name, value in vars(rules).items() if name.isupper()}
    return "".join(f"export const {name} = {script_json(value)};\n" for name, value in values.items())


@cache
def module(entry: str, *styles: str) -> str:
    """The module `entry` of `web/` and all that it imports, as one that imports nothing."""
    return joined(entry, lambda name: constants(*styles) if name == "constants.js" else _read(name))


def live_module() -> str:
    """The ES module of the live explorer, for anywidget."""
    return module("live.js", "explorer.css", "live.css")


def html_page(title: str, state: dict[str, Any], alone: bool, noscript: str = "") -> str:
    """A page that needs nothing else.

    Args:
        title: of the window.
        state: the model's values: "trace", "step" and "selected", or "comparison"; "theme", "height" if it is fixed.
        alone: whether it is a file of its own, not a frame in a notebook.
        noscript: markup shown where scripts do not run.
    """
    script = module("boot.js", "explorer.css")
    if "</script" in script.lower() or "<!--" in script:
        raise RuntimeError("the explorer's source would end its own script element")
    style = ALONE if alone else EMBEDDED
    parts = {"title": escape(title), "style": style, "noscript": noscript, "script": f"\n{script}\n"}
    return PAGE.format(**parts, state=script_json(state))


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII only, so no line separators that JavaScript would see
    return text.replace("<", "\\u003c")


def _read(name: str) -> str:
    return files("nanoinfer.explore").joinpath("web", name).read_text(encoding="utf-8")
