"""A score in the formats that platforms read: Gradescope's results.json, JUnit XML, a line of CSV."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

from nanoinfer.course.grading.score import Row, Score

CSV_COLUMNS = ("submission", "assignment", "score", "max_score", "percent", "seconds", "error", "not_passed")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def gradescope(score: Score) -> dict[str, Any]:
    """The content of results.json. Hidden tests count and stay hidden; their platform decides who sees what else."""
    return {
        "score": score.score,
        "execution_time": round(score.seconds),
        "output": score.error,
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [
            {
                "name": row.title,
                "number": row.part,
                "score": round(row.score, 4),
                "max_score": row.max_score,
                "status": "passed" if row.status == "passed" else "failed",
                "output": details(row),
                "output_format": "text",
                "visibility": row.visibility,
            }
            for row in score.rows
        ],
    }


def junit(scores: list[Score]) -> str:
    """JUnit XML: a suite for each submission, a case for each test, its points as properties."""
    root = ET.Element("testsuites")
    for score in scores:
        failures = sum(row.status != "passed" for row in score.rows)
        suite = ET.SubElement(root, "testsuite", name=_xml_text(score.submission), time=f"{score.seconds:.3f}")
        counts = {"tests": len(score.rows), "failures": failures, "errors": int(not score.rows)}
        suite.attrib.update({name: str(count) for name, count in counts.items()})
        for row in score.rows:
            _junit_case(suite, row)
        if score.error:
            ET.SubElement(suite, "system-err").text = _xml_text(score.error)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _junit_case(suite: ET.Element, row: Row) -> None:
    file, _, function = row.test_id.partition("::")
    case = ET.SubElement(
        suite, "testcase", classname=file.removesuffix(".py"), name=function, time=f"{row.seconds:.3f}"
    )
    properties = ET.SubElement(case, "properties")
    for name, value in (("title", row.title), ("points", f"{row.score:g}"), ("max_points", f"{row.max_score:g}")):
        ET.SubElement(properties, "property", name=name, value=_xml_text(value))
    if row.status != "passed":
        failure = ET.SubElement(case, "failure", message=_xml_text(row.message.partition("\n")[0]))
        failure.text = _xml_text(details(row))


def csv_row(score: Score) -> list[Any]:
    """Values for CSV_COLUMNS. A cell never begins like a formula: names of files are the students' choice."""
    missed = "; ".join(row.title for row in score.rows if row.status != "passed")
    error = score.error.partition("\n")[0]
    numbers = [score.score, score.max_score, score.percent, round(score.seconds, 2)]
    return [_cell(score.submission), score.assignment, *numbers, _cell(error), _cell(missed)]


def details(row: Row) -> str:
    """What a student is told of a test that did not pass; empty for one that did."""
    if row.status == "passed":
        return ""
    cases = f"{row.passed} of {row.cases} cases passed" if row.cases > 1 else ""
    return "\n".join(part for part in (cases, row.message, f"Hint: {row.hint}" if row.hint else "") if part)


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def _xml_text(text: str) -> str:
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
