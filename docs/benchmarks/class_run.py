"""How long does grading a class take, and does the grader hold on to memory?

A class of 200 hands in assignment 1: its wrong submissions over and over, the solution, the untouched starter, and,
among every 25, one that does not end, leaves by `sys.exit`, does not parse, or takes 10 GB. They are graded by the
command that an instructor would use, `nanoinfer course grade DIR/* --csv FILE`, in this process, and the memory that
this process holds is read before and after. Each submission is graded in processes of its own.

The CSV with every score is the evidence; beside it lies a JSON file with the time, the memory and the machine.

usage: python docs/benchmarks/class_run.py [--students 200] [--jobs 2]
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from common import EVIDENCE, save_evidence

from nanoinfer.cli import main as nanoinfer
from nanoinfer.course.grading.assignments import CHECKOUT, Course
from nanoinfer.course.grading.mutants import write_mutants
from nanoinfer.course.grading.release import starter

ASSIGNMENT = "a1"
EVERY = 25  # one of so many is hostile
HOSTILE = {
    "endless": "while True:\n    pass\n",
    "exits": "import sys\n\nsys.exit(0)\n",
    "no Python": "def measure(:\n",
    "10 GB": "x = [0] * (10 * 2**30 // 8)\n",
}


def hand_in(folder: Path, students: int) -> list[Path]:
    """A folder of work for each student, named after what it holds."""
    course = Course(CHECKOUT)
    with tempfile.TemporaryDirectory() as written:
        wrong = {path.stem: path.read_text() for path in write_mutants(course, ASSIGNMENT, Path(written))}
    solution = course.solution(ASSIGNMENT).read_text()
    usual = list({**wrong, "solution": solution, "starter": starter(solution)}.items())
    hostile = list(HOSTILE.items())
    handed_in = []
    for number in range(students):
        is_hostile = number % EVERY == EVERY - 1
        name, text = hostile[number // EVERY % len(hostile)] if is_hostile else usual[number % len(usual)]
        handed_in.append(folder / f"{number:03d} {name}")
        handed_in[-1].mkdir()
        (handed_in[-1] / "student.py").write_text(text)
    return handed_in


def held_mb() -> float:
    """Memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=200, help="size of the class (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="how many are graded at a time (default: %(default)s)")
    arguments = parser.parse_args()
    scores = EVIDENCE / "class_run.csv"
    with tempfile.TemporaryDirectory() as folder:
        submissions = hand_in(Path(folder), arguments.students)
        before, began = held_mb(), time.monotonic()
        command = ["course", "grade", "--assignment", ASSIGNMENT, "--jobs", str(arguments.jobs), "--csv", str(scores)]
        failed = nanoinfer([*command, *map(str, submissions)])
        seconds, after = time.monotonic() - began, held_mb()
        scores.write_text(scores.read_text().replace(f"{folder}/", ""))
    with scores.open(newline="") as file:
        percents = Counter(f"{float(row['percent']):.0f}" for row in csv.DictReader(file))
    results = {
        "assignment": ASSIGNMENT,
        "students": arguments.students,
        "jobs": arguments.jobs,
        "seconds": round(seconds, 1),
        "grader_mb_before": round(before, 1),
        "grader_mb_after": round(after, 1),
        "submissions_by_percent": dict(sorted(percents.items(), key=lambda item: int(item[0]))),
    }
    path = save_evidence("class_run", results, seed=0)
    print(f"{arguments.students} submissions in {seconds:.0f} s; the grader held {before:.0f} MB, then {after:.0f} MB")
    print(f"evidence: {path} and {scores.name}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
