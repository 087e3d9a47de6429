"""Counts, lists and names as a sentence says them. Every sentence about a trace is made with these."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sized
from typing import Any


def counted(number: int, noun: str) -> str:
    """`1 block`, `3 blocks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(items: Iterable[object], most: int = sys.maxsize) -> str:
    """`3`, `1, 2 and 3`; of more than `most` items the first ones and how many more there are."""
    every = list(items)
    texts = [*map(str, every[: most - 1]), f"{len(every) - most + 1} more"] if len(every) > most else [*map(str, every)]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def sequences(seq_ids: Iterable[int], most: int = 6) -> str:
    """`sequence 3`, `sequences 1, 2 and 3`; an empty text without any."""
    ids = list(seq_ids)
    return f"{verb(ids, 'sequence', 'sequences')} {listed(ids, most)}" if ids else ""


def verb(subjects: Sized, one: str, many: str) -> str:
    """`one` for a single subject, else `many`."""
    return one if len(subjects) == 1 else many


def capital(text: str) -> str:
    """`text` as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def fill(template: str, operands: Mapping[str, Any], who: str) -> str:
    """A sentence of `reasons.Reason` with its numbers and sequences; raises KeyError if an operand is missing."""
    return template.format_map({name: _Operand(value) for name, value in operands.items()} | {"who": who})


class _Operand:
    """Understands `{needed:block}` and `{free:is}`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __format__(self, spec: str) -> str:
        if spec == "is":
            return f"{self.value} {'is' if self.value == 1 else 'are'}"
        return counted(self.value, spec) if spec else str(self.value)
