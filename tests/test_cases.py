"""The numbers by which tests cite `tests/cases.md`, and the cases there, are the same."""

import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
DEFINED = re.findall(r"^- \*\*(B\d\d)\*\* ", (TESTS / "cases.md").read_text(encoding="utf-8"), re.MULTILINE)


@cache
def cited():
    """Every case number in a test file, with the files that cite it."""
    where = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if path != Path(__file__):
            for number in re.findall(r"\bB\d\d\b", path.read_text(encoding="utf-8")):
                where.setdefault(number, []).append(str(path.relative_to(TESTS)))
    return where


def test_every_number_that_a_test_cites_is_defined():
    assert {number: files for number, files in cited().items() if number not in DEFINED} == {}


def test_every_case_is_tested():
    assert [number for number in DEFINED if number not in cited()] == []


def test_a_number_stands_for_one_case():
    assert sorted(set(DEFINED)) == DEFINED
