"""Grade submissions: each in a pytest of its own, so that nothing of one is left for the next."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nanoinfer.course.grading.assignments import Assignment, Course, assignment_named, assignment_of
from nanoinfer.course.grading.score import Score

OVERALL = 120  # seconds a submission may take beside 20 times the limit of one test: the last resort
PYTEST = ["-q", "--tb=no", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "no:logging"]


@dataclass(frozen=True)
class Grading:
    """What is graded with."""

    course: Course
    assignment: str | None = None  # None to tell it from each submission's path
    hidden: Path | None = None  # folder of hidden tests; None for those of the course, where it has any
    public_only: bool = False
    by_name: bool = False  # seed the variant of each submission with the name of its folder

    def assignment_for(self, submission: Path) -> Assignment:
        return assignment_named(self.assignment) if self.assignment else assignment_of(submission.resolve())

    def tests(self, assignment: Assignment) -> list[Path]:
        """The files of tests, the public one first. ValueError if it is missing, or if `hidden` holds none."""
        public = self.course.public_tests(assignment.name)
        if not public.is_file():
            raise ValueError(f"no tests for {assignment.name}: there is no {public}")
        hidden = [] if self.public_only else self.course.hidden_tests(assignment.name, self.hidden)
        if self.hidden and not hidden and not self.public_only:
            raise ValueError(f"no hidden tests test_{assignment.name}_*.py in {self.hidden}")
        return [public, *hidden]


def grade(submission: Path, grading: Grading) -> Score:
    """The score of one submission: a file, a notebook, or a folder. It always comes back, with what went wrong.

    Raises:
        ValueError: there is no such submission, or the assignment or its tests are unknown.
    """
    if not submission.exists():
        raise ValueError(f"no submission {submission}: there is no such file or folder")
    assignment = grading.assignment_for(submission)
    command = [sys.executable, "-P", "-m", "pytest", *PYTEST, "-p", "nanoinfer.course.grading.plugin"]
    command += [f"--rootdir={grading.course.root}", f"--confcutdir={grading.course.tests}"]
    command += [f"--impl={submission.resolve()}", f"--course={grading.course.root}"]
    if grading.by_name:
        command.append(f"--variant={submission.resolve().name}")
    tests = [str(path.resolve()) for path in grading.tests(assignment)]
    with TemporaryDirectory(prefix="grade-") as folder:
        out = Path(folder) / "score.json"
        said = _run([*command, f"--grade-json={out}", *tests], folder, OVERALL + 20 * assignment.seconds)
        try:
            score = Score.from_dict(json.loads(out.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            score = Score("", error=f"the tests did not run: {said[-1000:].strip()}")
    score.submission, score.assignment = str(submission), assignment.name
    return score


def grade_all(submissions: Sequence[Path], grading: Grading, jobs: int) -> Iterator[Score]:
    """The scores in the order of `submissions`, as they come; `jobs` are graded at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda submission: _grade_or_say_why(submission, grading), submissions)


def _grade_or_say_why(submission: Path, grading: Grading) -> Score:
    """One submission that cannot be told does not stop the class."""
    try:
        return grade(submission, grading)
    except (ValueError, OSError) as error:
        return Score(str(submission), error=str(error), assignment=grading.assignment or "")


def _run(command: list[str], folder: str, seconds: float) -> str:
    """Run the grader to its end or for `seconds`; what it said."""
    environment = os.environ | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("PYTEST_ADDOPTS", None)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        return f"stopped after {seconds:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
