"""Points: what each test was worth, what it got, and the sums."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from nanoinfer.course.grading.case import Kind, Verdict

VISIBILITIES = ("visible", "hidden")


@dataclass
class ScoreLine:
    """One test function; the cases of a parametrised one share its points.

    Attributes:
        hint: shown when it fails; empty if the message holds one, or if the test did not get as far as the rule.
        message, kind: what the first case that failed said, and how it ended.
        seconds: of all cases.
    """

    test_id: str  # file and function
    title: str  # the first line of the docstring
    part: str  # what it is about
    max_score: float
    hint: str
    visibility: str  # one of VISIBILITIES
    cases: int = 0
    passed: int = 0
    message: str = ""
    seconds: float = 0.0
    kind: Kind = "passed"

    @classmethod
    def of(cls, item: pytest.Item, test_id: str) -> ScoreLine:
        """The line of a test that carries the marker `points`.

        Raises:
            pytest.UsageError: the marker is not as it should be.
        """
        marker = item.get_closest_marker("points")
        assert marker is not None
        unknown = marker.kwargs.keys() - {"part", "hint", "visibility"}
        number = marker.args[0] if len(marker.args) == 1 else None
        if unknown or not isinstance(number, (int, float)) or not 0 < number < math.inf:
            raise pytest.UsageError(
                f"{item.nodeid}: expected points(n, part=, hint=, visibility=) with n > 0: {marker}"
            )
        hidden = item.path.stem.endswith("_hidden")
        visibility = marker.kwargs.get("visibility", "hidden" if hidden else "visible")
        if visibility not in VISIBILITIES:
            raise pytest.UsageError(f"{item.nodeid}: visibility is one of {VISIBILITIES}, got {visibility!r}")
        words = (getattr(item.obj, "__doc__", None) or item.name.split("[")[0]).strip()  # type: ignore[attr-defined]
        part, hint = marker.kwargs.get("part", ""), marker.kwargs.get("hint", "")
        return cls(test_id, words.splitlines()[0], part, float(number), hint, visibility)

    def take(self, item: pytest.Item, verdict: Verdict) -> None:
        """Count one case."""
        self.seconds += verdict.seconds
        if verdict.outcome == "passed":
            self.passed += 1
        elif not self.message:
            case = item.name.partition("[")[2].rstrip("]")
            message = verdict.message or verdict.outcome
            self.kind, self.hint = verdict.kind, verdict.hint_beside(self.hint)
            self.message = f"[{case}] {message}" if case and self.cases > 1 else message

    @property
    def score(self) -> float:
        return self.max_score * self.passed / self.cases if self.cases else 0.0

    @property
    def status(self) -> str:
        """passed, failed, or partly."""
        return "passed" if self.passed == self.cases else "partly" if self.passed else "failed"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"score": round(self.score, 4), "seconds": round(self.seconds, 3), "status": self.status}


@dataclass
class Score:
    """The grade of one submission, with a line for each test."""

    submission: str
    lines: list[ScoreLine] = field(default_factory=list)
    seconds: float = 0.0  # wall time
    error: str = ""  # why the submission could not be graded at all
    assignment: str = ""

    @property
    def score(self) -> float:
        return round(math.fsum(line.score for line in self.lines), 4)

    @property
    def max_score(self) -> float:
        return round(math.fsum(line.max_score for line in self.lines), 4)

    @property
    def percent(self) -> float:
        return round(100 * self.score / self.max_score, 2) if self.max_score else 0.0

    def __str__(self) -> str:
        return f"{self.score:g} of {self.max_score:g} points ({self.percent:g} %)"

    def to_dict(self) -> dict[str, Any]:
        names = ("submission", "assignment", "score", "max_score", "percent", "error")
        tests = [line.to_dict() for line in self.lines]
        return {name: getattr(self, name) for name in names} | {"seconds": round(self.seconds, 2), "tests": tests}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Score:
        lines = [ScoreLine(**{k: v for k, v in test.items() if k not in ("score", "status")}) for test in data["tests"]]
        return cls(data["submission"], lines, data["seconds"], data["error"], data["assignment"])


def line_id(item: pytest.Item) -> str:
    """The name under which the cases of a test are added up: its file and function, whatever folder it is in."""
    return f"{item.path.name}::{item.nodeid.partition('::')[2].partition('[')[0]}"


def score_table(score: Score) -> Iterator[tuple[str, bool]]:
    """The table as text, line by line, each with whether it is good news."""
    if score.error:
        yield score.error, False
    for line in score.lines:
        good = line.status == "passed"
        points = f"{round(line.score, 2):g}/{line.max_score:g}"
        cases = f" ({line.passed} of {line.cases} cases)" if line.cases > 1 and not good else ""
        yield f"{line.status:<6} {points:>8}  {line.part:<14} {line.title}{cases}", good
        if not good:
            details = [*line.message.splitlines(), *([f"hint: {line.hint}"] if line.hint else [])]
            yield from ((f"{'':17}{text}", False) for text in details)
