"""A score in the formats that platforms read: Gradescope's results.json, JUnit XML, a line of CSV."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

from nanoinfer.course.grading.score import Score, ScoreLine

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
                "name": line.title,
                "number": line.part,
                "score": round(line.score, 4),
                "max_score": line.max_score,
                "status": "passed" if line.status == "passed" else "failed",
                "output": details(line),
                "output_format": "text",
                "visibility": line.visibility,
            }
            for line in score.lines
        ],
    }


def junit(scores: list[Score]) -> str:
    """JUnit XML: a suite for each submission, a case for each test, its points as properties."""
    root = ET.Element("testsuites")
    for score in scores:
        failures = sum(line.status != "passed" for line in score.lines)
        counts = {"tests": len(score.lines), "failures": failures, "errors": int(not score.lines)}
        suite = ET.SubElement(root, "testsuite", name=_xml_text(score.submission), time=f"{score.seconds:.3f}")
        suite.attrib.update({name: str(count) for name, count in counts.items()})
        for line in score.lines:
            _junit_case(suite, line)
        if score.error:
            ET.SubElement(suite, "system-err").text = _xml_text(score.error)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _junit_case(suite: ET.Element, line: ScoreLine) -> None:
    file, _, function = line.test_id.partition("::")
    names = {"classname": file.removesuffix(".py"), "name": function}
    case = ET.SubElement(suite, "testcase", names, time=f"{line.seconds:.3f}")
    properties = ET.SubElement(case, "properties")
    for name, value in (("title", line.title), ("points", f"{line.score:g}"), ("max_points", f"{line.max_score:g}")):
        ET.SubElement(properties, "property", name=name, value=_xml_text(value))
    if line.status != "passed":
        failure = ET.SubElement(case, "failure", message=_xml_text(line.message.partition("\n")[0]))
        failure.text = _xml_text(details(line))


def csv_row(score: Score) -> list[Any]:
    """Values for CSV_COLUMNS. A cell never begins like a formula: names of files are the students' choice."""
    missed = "; ".join(line.title for line in score.lines if line.status != "passed")
    error = score.error.partition("\n")[0]
    numbers = [score.score, score.max_score, score.percent, round(score.seconds, 2)]
    return [_cell(score.submission), score.assignment, *numbers, _cell(error), _cell(missed)]


def details(line: ScoreLine) -> str:
    """What a student is told of a test that did not pass; empty for one that did."""
    if line.status == "passed":
        return ""
    cases = f"{line.passed} of {line.cases} cases passed" if line.cases > 1 else ""
    return "\n".join(part for part in (cases, line.message, f"Hint: {line.hint}" if line.hint else "") if part)


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def _xml_text(text: str) -> str:
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
