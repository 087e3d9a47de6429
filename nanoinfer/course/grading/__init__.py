"""Assignments graded with pytest: points and hints, hidden tests, a process of its own for every test.

from nanoinfer.course.grading import check                  # in a notebook
from nanoinfer.course.grading import explain_failure, run_student    # in a test
"""

from nanoinfer.course.grading.failures import explain_failure
from nanoinfer.course.grading.foreign import run_student, watched
from nanoinfer.course.grading.notebook import check

__all__ = ["check", "explain_failure", "run_student", "watched"]
