"""The page of questions names cells; they exist, and stand in the section that it links."""

import re
from pathlib import Path

import nbformat
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "self-check.md"
NOTEBOOKS = sorted((PAGE.parents[1] / "notebooks").glob("*.ipynb"))
REFERENCE = re.compile(r"\[(\d\d): ([^\]]+)\]\((\.\./notebooks/[^)#]+)#([^)]+)\)(?:, cells? (\d+(?:, \d+)*))?")
REFERENCES = REFERENCE.findall(PAGE.read_text(encoding="utf-8"))


def sections(path):
    """{anchor: numbers of its cells, as shown beside them}."""
    found, current = {}, ""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            found[current].add(cell.execution_count)
        else:
            for heading in re.findall(r"^#+ (.*)$", cell.source, re.MULTILINE):
                current = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
                found[current] = set()
    return found


@pytest.mark.parametrize(("number", "title", "target", "anchor", "cells"), REFERENCES)
def test_a_reference_leads_to_its_section_and_cells(number, title, target, anchor, cells):
    path = PAGE.parent / target
    assert path.name.startswith(number)
    found = sections(path)
    assert anchor in found, f"{path.name} has {sorted(found)}"
    assert {int(cell) for cell in cells.split(", ") if cell} <= found[anchor], found[anchor]


def test_every_row_has_a_reference():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| question", "| belief"))]
    assert len(rows) > 50
    assert [row for row in rows if not REFERENCE.search(row)] == []


def test_every_lesson_answers_something():
    assert {number for number, *_ in REFERENCES} == {path.stem[:2] for path in NOTEBOOKS} - {"00"}
