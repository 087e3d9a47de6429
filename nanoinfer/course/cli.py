"""The commands of a course: `nanoinfer course release` and `nanoinfer course grade`."""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanoinfer.extras import require

if TYPE_CHECKING:
    from nanoinfer.course.grading.score import Score

SUMMARY = "Release assignments to students, and grade what they hand in."
EXAMPLE = "nanoinfer course grade submissions/* --assignment a2 --csv grades.csv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two commands and their options."""
    parser.set_defaults(run=lambda arguments: arguments.course_run(arguments))
    commands = parser.add_subparsers(required=True, metavar="release|grade")
    _add_release(commands)
    _add_grade(commands)


def _add_release(commands: Any) -> None:
    summary = "Write what students get to DIR: starters, public tests, notebooks without outputs."
    command = commands.add_parser("release", help=summary, description=summary)
    command.add_argument("dir", type=Path, metavar="DIR", help="a folder that does not exist yet")
    command.add_argument("--student", metavar="NAME", help="make the variant of this student")
    command.set_defaults(course_run=_release)


def _release(arguments: argparse.Namespace) -> int:
    from nanoinfer.course.grading.assignments import find_course
    from nanoinfer.course.grading.release import release

    names = release(find_course(Path.cwd()), arguments.dir, arguments.student)
    print(f"{arguments.dir}: {', '.join(names)}; nothing of the solutions, hidden tests or mutants is in it")
    return 0


def _add_grade(commands: Any) -> None:
    summary = "Grade submissions: files, notebooks or folders."
    command = commands.add_parser("grade", help=summary, description=summary, epilog=f"example: {EXAMPLE}")
    command.add_argument("submissions", nargs="+", type=Path, metavar="SUBMISSION")
    command.add_argument("--assignment", metavar="NAME", help="a1 and so on (default: told from each path)")
    command.add_argument("--hidden", type=Path, metavar="DIR", help="your hidden tests (default: those of the project)")
    command.add_argument("--public", action="store_true", help="leave the hidden tests out")
    command.add_argument("--by-name", action="store_true", help="each folder's name seeds its student's variant")
    command.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time (default: %(default)s)")
    for name, words in (
        ("json", "everything, as JSON"),
        ("gradescope", "Gradescope's results.json (one submission)"),
        ("junit", "JUnit XML"),
        ("csv", "a line for each submission, written as it comes"),
    ):
        command.add_argument(f"--{name}", type=Path, metavar="FILE", help=words)
    command.set_defaults(course_run=_grade)


def _grade(arguments: argparse.Namespace) -> int:
    require("nanoinfer course grade", "pytest")
    from tqdm.auto import tqdm

    from nanoinfer.course.grading.assignments import find_course
    from nanoinfer.course.grading.grade import Grading, grade_all
    from nanoinfer.course.grading.score import score_table

    _check_outputs(arguments)
    course = find_course(Path.cwd())
    grading = Grading(course, arguments.assignment, arguments.hidden, arguments.public, arguments.by_name)
    scores: list[Score] = []
    several = len(arguments.submissions) > 1
    coming = grade_all(arguments.submissions, grading, arguments.jobs)
    bar = tqdm(coming, total=len(arguments.submissions), unit="submission", disable=not several)
    for score in _written(bar, arguments.csv):
        scores.append(score)
        if several:
            tqdm.write(f"{score.percent:6.2f} %  {score.submission}  {score.error.partition(chr(10))[0]}")
    if not several:
        print(*(line for line, _ in score_table(scores[0])), scores[0], sep="\n")
    _write(scores, arguments)
    return 0


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Find out before the work, not after it, that something is wrong with what was asked for."""
    if arguments.gradescope and len(arguments.submissions) > 1:
        raise ValueError(f"--gradescope takes one submission, got {len(arguments.submissions)}")
    if arguments.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {arguments.jobs}")
    for path in (arguments.json, arguments.gradescope, arguments.junit, arguments.csv):
        if path and not path.parent.is_dir():
            raise ValueError(f"cannot write {path}: there is no folder {path.parent}")


def _written(scores: Iterable[Score], path: Path | None) -> Iterator[Score]:
    """The scores, each a line of CSV at once: an interrupted run keeps what it has."""
    from nanoinfer.course.grading.formats import CSV_COLUMNS, csv_row

    if path is None:
        yield from scores
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_COLUMNS)
        for score in scores:
            writer.writerow(csv_row(score))
            file.flush()
            yield score


def _write(scores: list[Score], arguments: argparse.Namespace) -> None:
    from nanoinfer.course.grading.formats import gradescope, junit

    if arguments.json:
        data = [score.to_dict() for score in scores]
        arguments.json.write_text(json.dumps(data if len(data) > 1 else data[0], indent=1) + "\n", encoding="utf-8")
    if arguments.gradescope:
        arguments.gradescope.write_text(json.dumps(gradescope(scores[0]), indent=1) + "\n", encoding="utf-8")
    if arguments.junit:
        arguments.junit.write_text(junit(scores), encoding="utf-8")
