"""The assignments as data, and where their files lie in a checkout or in a student's copy."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import nanoinfer

HELD_OUT = ("solutions", "hidden", "mutants")  # folders beside the public tests that no student gets
CHECKOUT = Path(nanoinfer.__file__).parents[1]


@dataclass(frozen=True)
class Assignment:
    """One assignment.

    Attributes:
        own: classes the student writes, each with the qualified name of the component it must not build on.
        needs_torch: whether its tests load torch (they then get more time and memory).
        seconds: wall time one test may take.
        memory_mb: memory one test may take on top of what the grader itself holds.
    """

    name: str  # "a1" and so on, the stem of all its files
    title: str
    own: dict[str, str] = field(default_factory=dict)
    needs_torch: bool = False
    seconds: float = 5
    memory_mb: int = 1024


ASSIGNMENTS = {
    assignment.name: assignment
    for assignment in (
        Assignment("a1", "Read a trace"),
        Assignment("a2", "A block manager", {"BlockManager": "nanoinfer.core.block_manager.BlockManager"}),
        Assignment("a3", "A two-phase scheduler", {"Scheduler": "nanoinfer.core.scheduler.Scheduler"}),
        Assignment("a4", "Preemption and recompute", {"Scheduler": "nanoinfer.core.scheduler.Scheduler"}),
        Assignment("a5", "A fairer policy"),
        Assignment("a6", "Beat the default"),
        Assignment("a7", "Find the bug"),
        Assignment("a8", "Paged attention", needs_torch=True, seconds=60, memory_mb=8192),
    )
}


def assignment_named(name: str) -> Assignment:
    """The assignment called `name`; ValueError names those there are."""
    if name not in ASSIGNMENTS:
        raise ValueError(f"no assignment {name!r}; there are {', '.join(ASSIGNMENTS)}")
    return ASSIGNMENTS[name]


def assignment_of(path: Path) -> Assignment:
    """The assignment that a file or folder belongs to by its name: test_a2.py, a2_leak.py, a2/student.py.

    Raises:
        ValueError: neither its name nor a folder above it says.
    """
    for part in (path.stem, *(parent.name for parent in path.parents)):
        found = re.search(r"(?:^|_)(a\d+)(?:_|$)", part)
        if found and found[1] in ASSIGNMENTS:
            return ASSIGNMENTS[found[1]]
    raise ValueError(f"cannot tell which assignment {path} belongs to; name it with --assignment")


@dataclass(frozen=True)
class Course:
    """The files of the assignments under `root`: a checkout of the project, or a student's copy."""

    root: Path

    @property
    def tests(self) -> Path:
        return self.root / "tests" / "assignments"

    @property
    def held_out(self) -> list[Path]:
        return [self.tests / name for name in HELD_OUT]

    @property
    def variant(self) -> str:
        """For whom this copy was made; empty in a checkout, and in a copy for everybody."""
        path = self.root / "student.txt"
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""

    def public_tests(self, name: str) -> Path:
        return self.tests / f"test_{name}.py"

    def hidden_tests(self, name: str, folder: Path | None = None) -> list[Path]:
        return sorted((folder or self.tests / "hidden").glob(f"test_{name}_*.py"))

    def solution(self, name: str) -> Path:
        return self.tests / "solutions" / f"{name}.py"

    def mutants(self, name: str) -> list[Path]:
        return sorted((self.tests / "mutants").glob(f"{name}_*.toml"))

    def folder(self, name: str) -> Path:
        return self.root / "notebooks" / "assignments" / name

    def student(self, name: str) -> Path:
        return self.folder(name) / "student.py"


def find_course(start: Path) -> Course:
    """The course whose tree `start` is in, else the checkout of the project.

    Raises:
        ValueError: there is none.
    """
    for root in (start.resolve(), *start.resolve().parents, CHECKOUT):
        if (root / "tests" / "assignments").is_dir():
            return Course(root)
    raise ValueError(f"no folder tests/assignments above {start}; the assignments come with a checkout or a release")
