"""A course of one small assignment, made for the tests of the grader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nanoinfer.course.grading.assignments import Course
from nanoinfer.course.grading.grade import Grading, grade
from nanoinfer.course.grading.score import Score, ScoreLine

PUBLIC = '''"""Public tests."""

import sys

import pytest


@pytest.mark.points(6, part="double", hint="Twice as much.")
def test_double(impl):
    """Doubles a number."""
    assert impl.double(4) == 8


@pytest.mark.points(3, part="total", hint="Add them all.")
@pytest.mark.parametrize("numbers", [[], [1], [1, 2, 3]], ids=["none", "one", "three"])
def test_total(impl, numbers):
    """Adds up a list.

    More words that are no title.
    """
    assert impl.total(numbers) == sum(numbers)


@pytest.mark.points(1)
def test_no_torch(impl):
    import colorsys  # not imported before a submission is loaded

    assert colorsys.rgb_to_hsv(0, 0, impl.double(0)) == (0, 0, 0)
    assert "torch" not in sys.modules
'''

HIDDEN = '''import pytest


@pytest.mark.points(10, part="total", hint="Negative ones too.")
def test_a_secret_property(impl):
    """Adds up negative numbers."""
    assert impl.total([-1, -2]) == -3
'''

SOLUTION = '''"""Two functions."""


def double(number):
    """Twice `number`."""
    # BEGIN SOLUTION
    return number + number  # the one true way of doubling
    # END SOLUTION


def total(numbers):
    """The sum of `numbers`."""
    # BEGIN SOLUTION
    amount_so_far = 0
    for one_more_number in numbers:
        amount_so_far += one_more_number
    return amount_so_far
    # END SOLUTION
'''

ANSWER = """
def double(number):
    return 2 * number

def total(numbers):
    return sum(numbers)
"""


def make_course(root: Path) -> Course:
    course = Course(root)
    for path, text in {
        course.public_tests("a1"): PUBLIC,
        course.tests / "hidden" / "test_a1_hidden.py": HIDDEN,
        course.solution("a1"): SOLUTION,
        course.tests / "mutants" / "a1_wrong.toml": 'mistake = "Wrong."\nhint = "right"\nedits = []\n',
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return course


def hand_in(folder: Path, text: str, name: str = "student.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


def graded(course: Course, submission: Path, **more: object) -> Score:
    return grade(submission, Grading(course, "a1", **more))


def line_of(score: Score, function: str) -> ScoreLine:
    return next(line for line in score.lines if line.test_id.endswith(f"::{function}"))


def run_pytest(course: Course, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The plugin as it is used by hand, beside no other."""
    command = [sys.executable, "-m", "pytest", "-p", "nanoinfer.course.grading.plugin", "-c", os.devnull]
    command += [f"--rootdir={course.root}", f"--confcutdir={course.tests}", *arguments]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=course.root, capture_output=True, text=True, timeout=120, env=alone)
