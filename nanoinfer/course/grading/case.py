"""One test of one submission, run in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

from nanoinfer.course.grading.assignments import CHECKOUT, Assignment, Course
from nanoinfer.course.grading.failures import Explanation, explanation_of, trace_file, traces_go_to
from nanoinfer.course.grading.guard import Guard, Seal, Tampered
from nanoinfer.course.grading.isolate import Ending, Limits, OutOfTime, run_isolated
from nanoinfer.course.grading.submission import Refused, describe, load, still_at

MOST = 3000  # characters of a message
Kind = Literal["passed", "skipped", "failed", "unwritten", "not_loaded", "stopped", "stopped_early"]


@dataclass(frozen=True)
class Verdict:
    """How a test ended, and what to say of it.

    Attributes:
        kind: "unwritten", if a function of the submission is not implemented yet; "not_loaded", if the submission
            cannot be loaded, so that no test is run; "stopped" and "stopped_early" as in `Ending`.
        why: the rule that the message ends with, if it does.
        hint: to show in place of the test's own.
        function: in which of the submission's functions it was stopped.
    """

    kind: Kind
    message: str = ""
    why: str = ""
    hint: str = ""
    seconds: float = 0.0
    function: str = ""

    @property
    def outcome(self) -> Literal["passed", "failed", "skipped"]:
        """As pytest's."""
        return self.kind if self.kind in ("passed", "skipped") else "failed"

    def hint_beside(self, hint: str) -> str:
        """What to show beside the message where the test's own hint is `hint`.

        That is nothing where the message says the same, or where the code did not get as far as the rule.
        """
        if self.kind in ("unwritten", "not_loaded", "stopped_early") or hint == self.why:
            return ""
        return self.hint or hint


class Case:
    """A test, and the submission at `path` it is run on, which may not read the held-out files of `course`.

    `seal` was taken before any submission was loaded.
    """

    _current: Case | None = None  # set in the process of the test

    def __init__(self, course: Course, assignment: Assignment, path: Path, item: pytest.Item, seal: Seal) -> None:
        self.course, self.assignment, self.path, self.item, self._seal = course, assignment, path, item, seal
        held_out = [*course.held_out, *Course(CHECKOUT).held_out]
        if item.path.parent != course.tests:  # an instructor's own folder of hidden tests
            held_out.append(item.path.parent)
        self.is_theirs = not any(folder.resolve() in path.resolve().parents for folder in held_out)
        self._forbidden = held_out if self.is_theirs else []  # a solution reads itself, and a mutant may read it

    @classmethod
    def current(cls) -> Case:
        if cls._current is None:
            raise RuntimeError("the fixture impl is there only while a test is graded")
        return cls._current

    def impl(self) -> ModuleType:
        """Load the module under test."""
        module = load(self.path, self.assignment)
        self._seal.check()
        return module

    def try_load(self, limits: Limits) -> Verdict:
        """Whether the submission can be loaded at all."""
        return self._isolated(lambda: [self.impl], limits)

    def run(self, limits: Limits) -> Verdict:
        """Set up, call and tear down the test."""
        if self._folder:
            trace_file(self._folder, self.item.name).unlink(missing_ok=True)
        return self._isolated(self._stages, limits)

    @property
    def _folder(self) -> Path | None:
        """Where traces of failures go: beside what a student wrote, not beside our own files."""
        return self.path.parent if self.is_theirs else None

    def _stages(self) -> list[Callable[[], Any]]:
        hooks, item = self.item.ihook, self.item
        return [
            lambda: hooks.pytest_runtest_setup(item=item),
            lambda: hooks.pytest_runtest_call(item=item),
            lambda: hooks.pytest_runtest_teardown(item=item, nextitem=None),
        ]

    def _isolated(self, stages: Callable[[], list[Callable[[], Any]]], limits: Limits) -> Verdict:
        started = time.monotonic()
        ending = run_isolated(lambda: self._judge(stages()), limits, still_at)
        printed = self._take_output()
        seconds = time.monotonic() - started
        if ending.kind == "answered":
            return Verdict(**ending.answer, seconds=seconds)
        return Verdict(ending.kind, _with_output(ending, printed), seconds=seconds, function=ending.function)

    def _take_output(self) -> str:
        """What the process printed into the capture it shares with us, so that it does not pile up."""
        capture = self.item.config.pluginmanager.getplugin("capturemanager")
        if capture is None or not capture.is_globally_capturing():
            return ""
        return "".join(capture.read_global_capture())

    # ---- in the forked process --------------------------------------------------------------

    def _judge(self, stages: list[Callable[[], Any]]) -> dict[str, str]:
        """Call `stages` in order; kind, message, why and hint of a Verdict."""
        Case._current = self
        traces_go_to(self._folder, self.item.name)
        self.item.config.option.verbose = 2  # pytest then shortens no value
        guard = Guard(self._forbidden, processes=self.assignment.needs_torch)
        guard.install()
        try:
            for stage in stages:
                stage()
            self._seal.check()
            guard.check()
        except (OutOfTime, MemoryError):
            raise
        except pytest.skip.Exception as skipped:
            return {"kind": "skipped", "message": str(skipped)[:MOST]}
        except BaseException as error:
            guard.armed = False
            return self._failure(guard, error)
        return {"kind": "passed"}

    def _failure(self, guard: Guard, error: BaseException) -> dict[str, str]:
        try:
            self._seal.check()
            guard.check()
        except Tampered as meddling:  # then that is the cause
            error = meddling
        message = str(error) if isinstance(error, (Refused, Tampered)) else describe(error)
        kind = "unwritten" if isinstance(error, NotImplementedError) else "failed"
        explanation = explanation_of(error) or Explanation(message)
        return {"kind": kind, "message": message[:MOST], "why": explanation.why, "hint": explanation.hint}


def _with_output(ending: Ending, printed: str) -> str:
    last = printed.strip().splitlines()[-3:]
    return "\n".join([ending.message, *(f"printed last: {line[:200]}" for line in last)])
