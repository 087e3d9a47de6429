"""Runs that were recorded once and that notebooks replay."""

from __future__ import annotations

from pathlib import Path

import nanoinfer
from nanoinfer.trace.trace import Trace

CHECKOUT = Path(nanoinfer.__file__).parents[1] / "notebooks" / "traces"


def recorded(name: str) -> Trace:
    """The run called `name`: from the folder `traces` beside the notebook, else from the checkout of the project.

    Raises:
        ValueError: neither has such a recording.
    """
    folders = (Path("traces"), CHECKOUT)
    for folder in folders:
        path = folder / f"{name}.jsonl.gz"
        if path.is_file():
            return Trace.load(path)
    known = sorted(path.name.removesuffix(".jsonl.gz") for folder in folders for path in folder.glob("*.jsonl.gz"))
    raise ValueError(f"no recorded trace {name!r}; there are {', '.join(known) or 'none'}")
