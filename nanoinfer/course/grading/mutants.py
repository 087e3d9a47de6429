"""Wrong submissions, written out: each is a solution with a few edits.

    python -m nanoinfer.course.grading.mutants DIR [a1 a2 ...]

`tests/assignments/mutants/aN_<name>.toml` holds the mistake, the hint that must appear where a test fails, and the
edits: each `old` stands in the solution exactly once and is replaced by `new`. An edit that a change of the solution
has overtaken is an error.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from nanoinfer.course.grading.assignments import ASSIGNMENTS, CHECKOUT, Course

MARKS = ("# BEGIN SOLUTION", "# END SOLUTION")


def write_mutants(course: Course, name: str, folder: Path) -> list[Path]:
    """Write the wrong submissions of one assignment into `folder`, each with its mistake and hint as its docstring.

    Raises:
        ValueError: an edit does not stand in the solution exactly once; names the file and the edit.
    """
    solution = body(course.solution(name).read_text(encoding="utf-8"))
    written = []
    for path in course.mutants(name):
        mutant = tomllib.loads(path.read_text(encoding="utf-8"))
        text, end = "", 0
        for edit in sorted(mutant["edits"], key=lambda edit: solution.find(edit["old"])):
            old, start = edit["old"], solution.find(edit["old"])
            if solution.count(old) != 1 or start < end:
                raise ValueError(f"{path.name}: this must stand in its solution once, apart from others:\n{old}")
            text += solution[end:start] + edit["new"]
            end = start + len(old)
        text += solution[end:]
        written.append(folder / f"{path.stem}.py")
        written[-1].write_text(f'"""{mutant["mistake"]}\n\nHint: {mutant["hint"]}\n"""\n\n{text}', encoding="utf-8")
    return written


def body(solution: str) -> str:
    """A solution without its docstring and marks."""
    lines = [line for line in solution.splitlines(keepends=True) if line.strip() not in MARKS]
    return "".join(lines).split('"""', 2)[2].lstrip("\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write wrong submissions into a folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(ASSIGNMENTS))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        print(*write_mutants(Course(CHECKOUT), name, arguments.folder), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
