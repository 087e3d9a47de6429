"""check("a1"): the public tests in a notebook, with points and hints in a table."""

from __future__ import annotations

from html import escape
from pathlib import Path

from nanoinfer.course.grading.assignments import assignment_named, find_course
from nanoinfer.course.grading.formats import details
from nanoinfer.course.grading.grade import Grading, grade
from nanoinfer.course.grading.score import Score, ScoreLine, score_table

MARKS = {"passed": "✓", "partly": "◐", "failed": "✗"}
CELL = 'style="text-align: left; vertical-align: top"'
WORDS = 'style="margin: 0; padding: 0; white-space: pre-wrap; background: none"'


class Report:
    """The score of one assignment, as a notebook shows it."""

    def __init__(self, title: str, score: Score) -> None:
        self.title, self.score = title, score

    def __repr__(self) -> str:
        return "\n".join([f"{self.title}: {self.score}", *(line for line, _ in score_table(self.score))])

    def _repr_html_(self) -> str:
        error = f"<pre {WORDS}>{escape(self.score.error)}</pre>" if self.score.error else ""
        rows = "".join(map(_table_row, self.score.lines))
        head = "".join(f"<th scope='col' {CELL}>{name}</th>" for name in ("", "points", "part", "test"))
        return f"<p><b>{escape(self.title)}: {self.score}</b></p>{error}<table><tr>{head}</tr>{rows}</table>"


def _table_row(line: ScoreLine) -> str:
    words = f"<pre {WORDS}>{escape(details(line))}</pre>" if line.status != "passed" else ""
    cells = (
        f"<span title='{line.status}'>{MARKS[line.status]}</span>",
        f"{round(line.score, 2):g} / {line.max_score:g}",
        escape(line.part),
        escape(line.title) + words,
    )
    return "<tr>" + "".join(f"<td {CELL}>{cell}</td>" for cell in cells) + "</tr>"


def check(name: str) -> Report:
    """Run the public tests of an assignment on the student.py beside this notebook.

    The tests run in other processes: whatever the code does, the notebook's kernel goes on, and an edit counts at once.

    Args:
        name: "a1" and so on.

    Raises:
        ValueError: no such assignment, or neither this folder nor the course holds a student.py.
    """
    assignment = assignment_named(name)
    course = find_course(Path.cwd())
    here = Path.cwd() / "student.py"
    submission = here if here.is_file() else course.student(name)
    if not submission.is_file():
        raise ValueError(f"no student.py in {Path.cwd()} or in {course.folder(name)}")
    return Report(assignment.title, grade(submission, Grading(course, name, public_only=True)))
