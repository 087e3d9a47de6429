"""Counts, lists and names as a sentence says them. Every sentence about a trace is made with these."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from string import Formatter
from typing import Any


def counted(number: int, noun: str) -> str:
    """`1 block`, `3 blocks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(items: Iterable[object], most: int | None = None) -> str:
    """`3`, `1, 2 and 3`; of more than `most` items the first ones and how many more there are."""
    texts = list(map(str, items))
    if most is not None and len(texts) > most:
        texts = [*texts[: most - 1], f"{len(texts) - most + 1} more"]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def sequences(seq_ids: Iterable[int], most: int | None = 6) -> str:
    """`sequence 3`, `sequences 1, 2 and 3`; an empty text without any."""
    ids = list(seq_ids)
    return f"{verb(ids, 'sequence', 'sequences')} {listed(ids, most)}" if ids else ""


def verb(subjects: Sized, one: str, many: str) -> str:
    """`one` for a single subject, else `many`."""
    return one if len(subjects) == 1 else many


def capital(text: str) -> str:
    """`text` as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def fill(template: str, values: dict[str, Any]) -> str:
    """A sentence of `reasons.Reason` with its numbers and sequences; raises KeyError if one is missing."""
    return _Sentence().vformat(template, (), values)


class _Sentence(Formatter):
    """Understands `{needed:block}` and `{free:is}`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "is":
            return f"{value} {'is' if value == 1 else 'are'}"
        return counted(value, format_spec) if format_spec else str(value)
