"""How one request wants its tokens drawn, and when it wants to stop."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from numbers import Real
from operator import index
from typing import Any


def as_int(field: str, value: object) -> int:
    """`value` as a plain int. Numpy and tensor integers pass; bools and floats do not.

    Raises:
        ValueError: names the field and the value.
    """
    if isinstance(value, bool):
        raise ValueError(f"{field} must be an integer, got {value!r}")
    try:
        return index(value)  # type: ignore[arg-type]  # index() itself is the check
    except TypeError:
        raise ValueError(f"{field} must be an integer, got {value!r}") from None


def as_ints(field: str, values: object) -> tuple[int, ...]:
    """`values` as a tuple of plain ints. Raises ValueError with the field and the value otherwise."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ValueError(f"{field} must be a list of integers, got {values!r}")
    values = tuple(values)
    plain = set(map(type, values)) <= {int}  # as a rule they are: then nothing is done for each of many tokens
    return values if plain else tuple(as_int(f"each of {field}", value) for value in values)


def as_number(field: str, value: object) -> float:
    """`value` as a finite float. Numpy's floats pass. Raises ValueError with the field and the value otherwise."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{field} must be a finite number, got {value!r}")
    return float(value)


def refuse_unknown(known: list[str], given: Iterable[str], what: str) -> None:
    """Raise TypeError for a name in `given` that is not in `known`, with the nearest known one."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise TypeError(f"unknown {what} {name!r}; did you mean {near!r}? Known: {', '.join(known)}")


@dataclass(frozen=True)
class SamplingParams:
    """Sampling and stopping rules of one request.

    Args:
        temperature: 0 picks the most likely token; above 0 divides the logits.
        top_k: keep the k most likely tokens; 0 or -1 keeps all. Above the vocabulary it is the vocabulary.
        top_p: keep the smallest set of tokens whose probability reaches p, in (0, 1].
        max_tokens: most tokens to generate, at least 1.
        ignore_eos: go on after an end-of-sequence token.
        stop_token_ids: further ids that end the request (finish reason "stop").
        seed: of this request's own random numbers; None derives one from the engine's seed and the request id.

    Raises:
        TypeError: an unknown field; the message names the nearest known one.
        ValueError: names the field, the value and what is allowed.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_tokens: int = 64
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None

    def __new__(cls, *_: Any, **given: Any) -> SamplingParams:
        """Refuse unknown fields by name, before the generated __init__ sees them."""
        refuse_unknown([f.name for f in fields(cls)], given, "sampling parameter")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        checked = {
            "temperature": as_number("temperature", self.temperature),
            "top_k": as_int("top_k", self.top_k),
            "top_p": as_number("top_p", self.top_p),
            "max_tokens": as_int("max_tokens", self.max_tokens),
            "stop_token_ids": as_ints("stop_token_ids", self.stop_token_ids),
            "seed": None if self.seed is None else as_int("seed", self.seed),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)  # frozen for callers; normalised once, here
        if not isinstance(self.ignore_eos, bool):
            raise ValueError(f"ignore_eos must be True or False, got {self.ignore_eos!r}")
        if self.temperature < 0:
            raise ValueError(f"temperature must be 0 (greedy) or above, got {self.temperature}")
        if self.top_k < -1:
            raise ValueError(f"top_k must be 0 or -1 (off) or a positive count, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1 (off), got {self.top_p}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if any(token < 0 for token in self.stop_token_ids):
            raise ValueError(f"stop_token_ids must not be negative, got {self.stop_token_ids}")

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-ready values."""
        return asdict(self) | {"stop_token_ids": list(self.stop_token_ids)}
