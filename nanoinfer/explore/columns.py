"""Typed columns in one buffer, gzipped, as text that fits into JSON.

A column is stored in the narrowest type that holds its values, so no value can overflow. The
browser unpacks the buffer with `DecompressionStream` and looks at it through typed arrays.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

Numbers = Sequence[int] | Sequence[float] | np.ndarray[Any, Any]
TYPES = ("u1", "i1", "u2", "i2", "i4", "f8")  # narrowest first; f8 is exact for integers up to 2**53
ALIGNMENT = 8  # bytes: a typed array must start at a multiple of its item's size


class Columns:
    """Named columns on their way into a buffer, in the order in which they were put."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, str, bytes]] = []

    def numbers(self, name: str, values: Numbers) -> None:
        """Put a column of numbers."""
        array = np.asarray(values)
        kind = narrowest(array)
        self._parts.append((name, kind, array.astype(f"<{kind}").tobytes()))

    def json(self, name: str, value: Any) -> None:
        """Put anything that JSON can hold."""
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        # Half a surrogate pair is a legal Python string, but no UTF-8.
        self._parts.append((name, "json", text.encode("utf-8", errors="replace")))

    def encode(self) -> dict[str, Any]:
        """`{"layout": [[name, type, offset, bytes], ...], "data": base64 of the gzipped buffer}`."""
        layout: list[list[Any]] = []
        buffer = bytearray()
        for name, kind, data in self._parts:
            layout.append([name, kind, len(buffer), len(data)])
            buffer += data + bytes(-len(data) % ALIGNMENT)
        packed = gzip.compress(bytes(buffer), compresslevel=6, mtime=0)
        return {"layout": layout, "data": base64.b64encode(packed).decode("ascii")}


def narrowest(array: np.ndarray[Any, Any]) -> str:
    """The first of TYPES that holds every value of `array` exactly.

    Raises:
        ValueError: an integer beyond 2**53, which a JavaScript number cannot hold.
    """
    if array.size == 0:
        return TYPES[0]
    if array.dtype.kind == "f":
        return "f8"
    low, high = int(array.min()), int(array.max())
    for kind in TYPES[:-1]:
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return kind
    if max(-low, high) > 2**53:
        raise ValueError(f"a column from {low} to {high} does not fit into the numbers of a browser")
    return "f8"
