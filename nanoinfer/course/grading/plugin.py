"""The pytest plugin: points for tests, the student's module as the fixture `impl`, a process of its own for each test.

    python -m pytest -p nanoinfer.course.grading.plugin --impl=student tests/assignments/test_a1.py

A test is worth points by `@pytest.mark.points(3, part="chunking", hint="Only the first may be cut.")`; the cases of
a parametrised test share them. Its title is the first line of its docstring.
"""

from __future__ import annotations

import gc
import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest

from nanoinfer.course.grading.assignments import Assignment, assignment_of, find_course
from nanoinfer.course.grading.case import Case, Verdict
from nanoinfer.course.grading.guard import Seal
from nanoinfer.course.grading.isolate import Limits
from nanoinfer.course.grading.release import starter
from nanoinfer.course.grading.score import Score, ScoreLine, line_id, score_table
from nanoinfer.course.grading.submission import find_submission

PATIENCE = 3  # tests of one submission that may use up their whole time; the others then get a second each
NOT_LOADED = Verdict("not_loaded", "not run: the file cannot be loaded, see above")
HURRIED = f"\n({PATIENCE} tests have used up their whole time: those after them get a second each)"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("grading")
    group.addoption("--impl", default="student", help="student (default), reference, stub, or a file or folder")
    group.addoption("--grade-json", metavar="FILE", type=Path, help="write points, messages and hints to FILE")
    group.addoption("--course", metavar="DIR", type=Path, help="where notebooks/assignments and tests/assignments are")
    seeded = "seed of the fixture variant (default: what a release was made for)"
    group.addoption("--variant", metavar="NAME", help=seeded)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    mark = "points(n, part='', hint='', visibility='visible' | 'hidden'): what a test is worth"
    config.addinivalue_line("markers", mark)
    config.option.reportchars = "N"  # no summary of pytest's own: the table says it all, and in full
    config.pluginmanager.register(Grader(config), "nanoinfer-grader")
    config.option.importmode = "importlib"  # else pytest puts folders of tests on sys.path, and an import lists them
    os.environ["TRITON_INTERPRET"] = "1"  # read by triton: points are the same with a GPU and without


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str]:
    """Both sides of a comparison in full, and no advice about options of pytest."""
    return [f"{left!r} {op} {right!r}"]


@pytest.fixture(scope="session")
def impl() -> ModuleType:
    """The module under test, loaded in the process of the test that asks for it."""
    return Case.current().impl()


@pytest.fixture
def variant(request: pytest.FixtureRequest) -> random.Random:
    """Numbers that differ from student to student and are the same whenever this student's test runs."""
    grader = request.config.pluginmanager.getplugin("nanoinfer-grader")
    return random.Random(f"{grader.variant} {request.node.name}")


class Grader:
    """Grades one session: runs each test apart and adds up the points."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.course = find_course(config.getoption("--course") or config.invocation_params.dir)
        self.variant = config.getoption("--variant") or self.course.variant
        self.lines: dict[str, ScoreLine] = {}
        self.errors: list[str] = []
        self.started = time.monotonic()
        self._loads: dict[Path, Verdict] = {}
        self._told: dict[str, str] = {}  # messages, and the title of the test that had each first
        self._patience = PATIENCE
        self._endless: frozenset[str] = frozenset()  # functions in which a test was stopped
        self._stubs: TemporaryDirectory[str] | None = None

    # ---- which tests there are --------------------------------------------------------------

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if item.get_closest_marker("points"):
                self.lines.setdefault(line_id(item), ScoreLine.of(item, line_id(item))).cases += 1

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        modules = {module for item in session.items if (module := item.getparent(pytest.Module))}
        self._seal = Seal([module.obj for module in modules])
        gc.freeze()  # what is here now stays shared with the forked processes

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid} cannot be read: {str(report.longrepr).strip()[-1000:]}")

    # ---- running one --------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        started = time.time()
        verdict = self._verdict(item)
        line = self.lines.get(line_id(item))
        if line:
            verdict = self._tell_once(line, verdict)
            line.take(item, verdict)
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords=dict.fromkeys(item.keywords, 1),
            outcome=verdict.outcome,
            longrepr=verdict.message or None,
            when="call",
            duration=time.time() - started,
            start=started,
            stop=time.time(),
        )
        item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _verdict(self, item: pytest.Item) -> Verdict:
        assignment = assignment_of(item.path)
        try:
            path = self._path(assignment)
        except ValueError as error:
            self._loads[item.path] = Verdict("failed", str(error))
            return NOT_LOADED
        seconds = assignment.seconds if self._patience else min(assignment.seconds, 1)
        limits = Limits(seconds, assignment.memory_mb, self._endless)
        case = Case(self.course, assignment, path, item, self._seal)
        if path not in self._loads:  # what cannot be loaded is said once, not waited for in every test
            self._loads[path] = case.try_load(limits)
        if self._loads[path].outcome == "failed":
            return NOT_LOADED
        verdict = case.run(limits)
        if verdict.kind != "stopped":
            return verdict
        self._endless |= {verdict.function} - {""}
        hurried = not self._patience
        self._patience -= not hurried
        return replace(verdict, message=verdict.message + HURRIED * hurried)

    def _tell_once(self, line: ScoreLine, verdict: Verdict) -> Verdict:
        """A slip that stops many tests is told by the first of them."""
        if verdict.kind != "failed":
            return verdict
        first = self._told.setdefault(verdict.message, line.title)
        return verdict if first == line.title else replace(verdict, message=f"the same error as in: {first}", why="")

    def _path(self, assignment: Assignment) -> Path:
        which, name = self.config.getoption("--impl"), assignment.name
        if which == "reference":
            return self.course.solution(name)
        if which == "stub":
            return self._stub(name)
        return find_submission(self.course.folder(name) if which == "student" else Path(which).resolve(), name)

    def _stub(self, name: str) -> Path:
        self._stubs = self._stubs or TemporaryDirectory(prefix="starters-")
        path = Path(self._stubs.name) / f"{name}.py"
        path.write_text(starter(self.course.solution(name).read_text(encoding="utf-8")), encoding="utf-8")
        return path

    # ---- the score ----------------------------------------------------------------------------

    def score(self) -> Score:
        # What kept the whole submission, or a file of tests, from being graded.
        error = "\n".join([*self.errors, *dict.fromkeys(v.message for v in self._loads.values() if v.message)])
        seconds = time.monotonic() - self.started
        return Score(self.config.getoption("--impl"), list(self.lines.values()), seconds, error)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.lines and not self.errors:
            return
        score = self.score()
        terminalreporter.section(str(score))
        for line, good in score_table(score):
            terminalreporter.write_line(line, green=good, red=not good)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        path: Path | None = self.config.getoption("--grade-json")
        if path:
            path.write_text(json.dumps(self.score().to_dict(), indent=1) + "\n", encoding="utf-8")
        if self._stubs:
            self._stubs.cleanup()
