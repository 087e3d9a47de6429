"""Columns of numbers, in the narrowest type that holds them: byte for byte what numpy's arrays of that type are."""

import base64
import gzip
import math

import numpy as np
import pytest
from kit.node import run_node

from nanoinfer.explore.columns import Columns

INTEGERS = ("u1", "i1", "u2", "i2", "i4")


def told(**columns):
    """For each column (its type, its bytes), as a reader of the payload finds them."""
    put = Columns()
    for name, values in columns.items():
        put.numbers(name, values)
    packed = put.encode()
    data = gzip.decompress(base64.b64decode(packed["data"]))
    return {name: (kind, data[offset : offset + length]) for name, kind, offset, length in packed["layout"]}


def test_columns_are_as_wide_as_their_numbers():
    columns = told(a=[0, 255], b=[-1, 127], c=[256], d=[-129], e=[70_000], f=[2**40], g=[0.5], none=[])
    types = {name: kind for name, (kind, _) in columns.items()}
    assert types == {"a": "u1", "b": "i1", "c": "u2", "d": "i2", "e": "i4", "f": "f8", "g": "f8", "none": "u1"}


def test_a_column_starts_at_a_multiple_of_eight_bytes():
    columns = Columns()
    for name in "abc":
        columns.numbers(name, [1, 2, 3])
    assert [offset for _, _, offset, _ in columns.encode()["layout"]] == [0, 8, 16]


def test_the_page_reads_what_was_put():
    columns, values = Columns(), {"a": [0, 255], "b": [-1, 127], "c": [256], "d": [-129], "e": [70_000], "f": [2**40]}
    values |= {"g": [0.5], "none": []}
    for name, column in values.items():
        columns.numbers(name, column)
    with pytest.raises(ValueError, match="does not fit"):
        Columns().numbers("h", [2**60])
    run_node("columns.test.mjs", [{"chunk": columns.encode(), "columns": values}])


def edges():
    """For each type, columns that reach its limits, and the next numbers beyond them."""
    for kind in INTEGERS:
        limits = np.iinfo(kind)
        low, high = int(limits.min), int(limits.max)
        yield from ([low], [high], [high, 0, low], [low - 1], [high + 1], [0, high + 1, low])
    yield from ([2**53], [-(2**53)], [2**53, -1], [], [0], [True, False])
    yield from ([0.0], [-0.0, 1.5], [math.pi, 1e300, 5e-324], [math.inf, -math.inf, math.nan])


def as_numpy(values):
    """(the first type that holds them, their bytes) in numpy's words."""
    array = np.asarray(values)
    whole = array.size == 0 or array.dtype.kind != "f"
    fits = [kind for kind in INTEGERS if whole and all(np.iinfo(kind).min <= v <= np.iinfo(kind).max for v in values)]
    kind = [*fits, "f8"][0]
    return kind, array.astype(f"<{kind}").tobytes()


@pytest.mark.parametrize("values", [*edges()], ids=str)
def test_bytes_are_those_of_numpy_at_every_limit(values):
    assert told(x=values) == {"x": as_numpy(values)}


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1])
def test_an_integer_that_no_browser_can_hold_is_refused(value):
    with pytest.raises(ValueError, match=f"a column from {value} to {value} does not fit"):
        Columns().numbers("x", [value])
