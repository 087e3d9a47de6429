"""Every solution, starter and wrong submission graded, and what does not hold.

    python tests/assignments/matrix.py [a1 a2 ...] [--json FILE]

What must hold: a solution scores 100 %, a starter 0 %, a wrong submission something in between, with the hint its
docstring names; and every graded test is failed by a starter or by a wrong submission.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from nanoinfer.course.grading.assignments import ASSIGNMENTS, CHECKOUT, Course
from nanoinfer.course.grading.grade import Grading, grade_all
from nanoinfer.course.grading.mutants import write_mutants
from nanoinfer.course.grading.release import starter
from nanoinfer.course.grading.score import Score, ScoreLine

COURSE = Course(CHECKOUT)
JOBS = 2


def hint_of(mutant: Path) -> str:
    """What the docstring of a wrong submission says after "Hint:": it must appear where a test fails."""
    words = ast.get_docstring(ast.parse(mutant.read_text(encoding="utf-8"))) or ""
    return re.search(r"^Hint: (.+)$", words, re.MULTILINE)[1]


def failed(score: Score) -> list[ScoreLine]:
    return [line for line in score.lines if line.status != "passed"]


def problems(name: str, scores: dict[Path, Score]) -> list[str]:
    """What does not hold for the graded files of one assignment."""
    solution, begun = COURSE.solution(name), COURSE.student(name)
    found = [f"{path.name}: {score.error}" for path, score in scores.items() if score.error]
    if scores[solution].percent != 100:
        found.append(f"the solution scores {scores[solution]}")
    if scores[begun].percent != 0:
        found.append(f"the starter scores {scores[begun]}")
    if begun.read_text(encoding="utf-8") != starter(solution.read_text(encoding="utf-8")):
        found.append(f"{begun} is not the starter of its solution")
    for path, score in scores.items():
        found += problems_of_mutant(path, score) if path not in (solution, begun) else []
    return found + problems_of_points(scores[solution].lines)


def problems_of_points(lines: list[ScoreLine]) -> list[str]:
    """About 60 points are visible and 40 hidden, in at least 10 and 6 tests; each has a hint."""
    found = [f"{line.test_id} has no hint" for line in lines if not line.hint]
    for visibility, points, tests in (("visible", 60, 10), ("hidden", 40, 6)):
        mine = [line for line in lines if line.visibility == visibility]
        if sum(line.max_score for line in mine) != points or len(mine) < tests:
            found.append(f"{len(mine)} {visibility} tests have {sum(line.max_score for line in mine):g} points")
    return found


def problems_of_mutant(path: Path, score: Score) -> list[str]:
    found = [] if 0 < score.percent < 100 else [f"{path.name} scores {score}"]
    hint = hint_of(path)
    if not any(hint in line.hint or hint in line.message for line in failed(score)):
        found.append(f"{path.name}: no failing test says {hint!r}")
    return found


def never_failed(name: str, scores: dict[Path, Score]) -> list[str]:
    """Graded tests that nothing fails: they test nothing."""
    wrong = {line.test_id for path, score in scores.items() if path != COURSE.solution(name) for line in failed(score)}
    return [line.test_id for line in scores[COURSE.solution(name)].lines if line.test_id not in wrong]


def graded(name: str, mutants: Iterable[Path]) -> dict[Path, Score]:
    """The scores of the solution, the starter and `mutants`, by file."""
    files = [COURSE.solution(name), COURSE.student(name), *mutants]
    return dict(zip(files, grade_all(files, Grading(COURSE, assignment=name), JOBS), strict=True))


def report(name: str) -> dict[str, object]:
    """One assignment, all its wrong submissions."""
    started = time.monotonic()
    with TemporaryDirectory() as folder:
        scores = graded(name, write_mutants(COURSE, name, Path(folder)))
        return summary(name, scores, started)


def summary(name: str, scores: dict[Path, Score], started: float) -> dict[str, object]:
    """What `report` says, while the wrong submissions are there."""
    solution = scores[COURSE.solution(name)]
    points = {"visible": 0.0, "hidden": 0.0}
    for line in solution.lines:
        points[line.visibility] += line.max_score
    return {
        "points": points,
        "tests": len(solution.lines),
        "percent": {path.name: score.percent for path, score in scores.items()},
        "problems": [*problems(name, scores), *(f"nothing fails {test}" for test in never_failed(name, scores))],
        "failed_by_the_starter_only": starter_only(name, scores),
        "seconds": round(time.monotonic() - started, 1),
    }


def starter_only(name: str, scores: dict[Path, Score]) -> list[str]:
    mutants = {path: score for path, score in scores.items() if path != COURSE.student(name)}
    return never_failed(name, mutants)


def main() -> int:
    parser = argparse.ArgumentParser(description="Grade every solution, starter and wrong submission.")
    parser.add_argument("names", nargs="*", default=list(ASSIGNMENTS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    reports = {}
    for name in arguments.names:
        reports[name] = found = report(name)
        count = len(found["percent"]) - 2
        print(f"{name}: {count} wrong submissions, {found['seconds']} s, {found['problems'] or 'fine'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")
    return any(found["problems"] for found in reports.values())


if __name__ == "__main__":
    sys.exit(main())
