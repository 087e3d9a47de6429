"""Typed columns in one buffer, gzipped, as text that fits into JSON.

A column is stored in the narrowest type that holds its values, so no value can overflow. The
browser unpacks the buffer with `DecompressionStream` and looks at it through typed arrays.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from collections.abc import Sequence
from typing import Any

Numbers = Sequence[int] | Sequence[float]
# Narrowest first: the type, its letter in `struct`, the lowest and the highest integer that it holds exactly.
TYPES = (
    ("u1", "B", 0, 2**8 - 1),
    ("i1", "b", -(2**7), 2**7 - 1),
    ("u2", "H", 0, 2**16 - 1),
    ("i2", "h", -(2**15), 2**15 - 1),
    ("i4", "i", -(2**31), 2**31 - 1),
    ("f8", "d", -(2**53), 2**53),
)
ALIGNMENT = 8  # bytes: a typed array must start at a multiple of its item's size


class Columns:
    """Named columns on their way into a buffer, in the order in which they were put."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, str, bytes]] = []

    def numbers(self, name: str, values: Numbers) -> None:
        """Put a column of integers, or of floats."""
        kind, letter = narrowest(values)
        self._parts.append((name, kind, struct.pack(f"<{len(values)}{letter}", *values)))

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


def narrowest(values: Numbers) -> tuple[str, str]:
    """The first of TYPES that holds every one of `values` exactly, and its letter in `struct`.

    Raises:
        ValueError: an integer beyond 2**53, which a JavaScript number cannot hold.
    """
    if values and isinstance(values[0], float):
        return "f8", "d"
    low, high = min(values, default=0), max(values, default=0)
    for kind, letter, least, most in TYPES:
        if least <= low and high <= most:
            return kind, letter
    raise ValueError(f"a column from {low} to {high} does not fit into the numbers of a browser")
