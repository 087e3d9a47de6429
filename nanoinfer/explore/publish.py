"""Notebooks for people without a kernel: widgets are taken out, what stands beside them stays.

A stored widget needs the state that only its kernel had. JupyterLab then shows an error instead of
the HTML beside it, and other readers refuse the notebook.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

WIDGET = "application/vnd.jupyter.widget-view+json"
STATIC = ("text/html", "text/markdown", "text/latex", "image/")


def strip_widgets(notebook: MutableMapping[str, Any]) -> int:
    """Remove every widget from `notebook` (nbformat 4, changed in place) and return how many outputs had one.

    Raises:
        ValueError: an output has nothing but the widget (and a bare text). The notebook is unchanged then.
    """
    outputs = [
        (number, output["data"])
        for number, cell in enumerate(notebook.get("cells", []))
        for output in cell.get("outputs", [])
        if WIDGET in output.get("data", {})
    ]
    bare = [number for number, data in outputs if not any(name.startswith(STATIC) for name in data)]
    if bare:
        cells = ", ".join(map(str, dict.fromkeys(bare)))
        raise ValueError(f"widgets without a static form in cells {cells}: without a kernel nothing would be left")
    for _, data in outputs:
        del data[WIDGET]
    notebook.get("metadata", {}).pop("widgets", None)
    return len(outputs)
