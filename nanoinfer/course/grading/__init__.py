"""Assignments graded with pytest: points and hints, hidden tests, a process of its own for every test.

from nanoinfer.course.grading import check                  # in a notebook
from nanoinfer.course.grading import expect, explain_failure, run_student    # in a test
"""

from nanoinfer.extras import require

require("nanoinfer.course.grading", "pytest")
from nanoinfer.course.grading.adapter import run_student, watched  # noqa: E402
from nanoinfer.course.grading.failures import expect, explain_failure  # noqa: E402
from nanoinfer.course.grading.report import check  # noqa: E402

__all__ = ["check", "expect", "explain_failure", "run_student", "watched"]
