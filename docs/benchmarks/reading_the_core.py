"""How much of the scheduler must be read before `schedule()` makes sense?

`measure_core.py` runs inside each tree, in a process of its own, and watches Python run the scheduler. Counted are

- lines: non-blank lines of the scheduler, its default policy and the registry of policies. Those are the files below
  `nanoinfer/core/` in which code runs while a Scheduler is made or its `schedule()` runs, and the one that assigns
  POLICIES, without the files of the block manager, the sequence, the plan and its rows;
- functions: every `def` in those files;
- names: what the project defines and `schedule()` and its helpers use: names and attributes in the functions of those
  files that a crowded run of `schedule()` enters, `preempt` among them. Not counted are parameters, local variables,
  the scheduler's own class, keywords of a call, and whatever is called as something in Python itself is: builtins, and
  methods of list, dict, tuple, set, str, int and deque;
- moves: changes of file from one event to the next while one `schedule()` runs, where an event is a call, a new line or
  a return in the project's code. The prefill has two rows; in the decode each of three rows takes a new block;
- functions entered: those that this `schedule()` calls, and itself. A comprehension counts where Python calls it: 3.11
  calls all of them, 3.12 only generator expressions;
- files to read: those below `nanoinfer/core/` in which code runs while a Scheduler is made or its `schedule()` runs.

usage: python docs/benchmarks/reading_the_core.py [--tree PATH] [--before PATH] [--verbose] [--json]

The exit status is 1 if the tree is above one of the limits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from common import commit_of, save_evidence

HERE = Path(__file__).resolve().parent
Listing = dict[str, list[str]]  # by measure: each thing that was counted


class Measure(NamedTuple):
    """A line of the table; `limit` is the most that a tree may have of it."""

    name: str
    title: str
    limit: int | None = None


MEASURES = (
    Measure("lines", "non-blank lines of scheduler + default policy + registry", 200),
    Measure("functions", "functions"),
    Measure("names", "project names in schedule() and its helpers", 48),
    Measure("decode_moves", "changes of file while one decode schedule() runs", 40),
    Measure("decode_functions", "functions entered in that call", 14),
    Measure("prefill_moves", "changes of file while one prefill schedule() runs"),
    Measure("prefill_functions", "functions entered in that call"),
    Measure("files_to_read", "files to read before schedule() makes sense", 4),
)


def listing_of(tree: Path) -> Listing:
    """What is counted in a checkout.

    Raises:
        RuntimeError: its scheduler could not be run; gives the end of what Python said.
    """
    command = [sys.executable, str(HERE / "measure_core.py"), str(tree)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the scheduler of {tree} cannot be measured: {done.stderr.strip()[-2000:]}")
    listing: Listing = json.loads(done.stdout)
    return listing


def counts(listing: Listing) -> dict[str, int]:
    return {measure.name: len(listing[measure.name]) for measure in MEASURES}


def excesses(listing: Listing) -> list[str]:
    """A sentence for each limit that a tree is above."""
    return [
        f"{m.title}: {len(listing[m.name])}, and the limit is {m.limit}"
        for m in MEASURES
        if m.limit is not None and len(listing[m.name]) > m.limit
    ]


def table(listings: dict[str, Listing]) -> list[str]:
    """The measures of each tree, side by side."""
    width = max(len(measure.title) for measure in MEASURES)
    lines = [" " * width + "".join(f"{column:>8}" for column in (*listings, "limit"))]
    for measure in MEASURES:
        cells: list[Any] = [len(listing[measure.name]) for listing in listings.values()]
        lines.append(f"{measure.title:<{width}}" + "".join(f"{cell:>8}" for cell in (*cells, measure.limit or "")))
    return lines


def details(listing: Listing) -> list[str]:
    """Each thing that was counted; of lines only how many of which file."""
    per_file = Counter(line.rsplit(":", 1)[0] for line in listing["lines"])
    listed = listing | {"lines": [f"{number:4} {file}" for file, number in per_file.items()]}
    return [line for name, things in listed.items() for line in (f"\n{name}:", *(f"  {thing}" for thing in things))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=HERE.parents[1], help="checkout to measure (default: this one)")
    parser.add_argument("--before", type=Path, metavar="PATH", help="another checkout, to compare it with")
    parser.add_argument("--verbose", action="store_true", help="also list what was counted in the tree")
    parser.add_argument("--json", action="store_true", help="write the evidence")
    options = parser.parse_args()
    trees = ({"before": options.before} if options.before else {}) | {"now": options.tree}
    listings = {column: listing_of(tree.resolve()) for column, tree in trees.items()}
    now = listings["now"]
    print(*table(listings), sep="\n")
    if options.verbose:
        print(*details(now), sep="\n")
    if options.json:
        results = {
            column: {"commit": commit_of(trees[column]), **counts(listing)} for column, listing in listings.items()
        }
        limits = {m.name: m.limit for m in MEASURES if m.limit is not None}
        listed = {name: things for name, things in now.items() if name != "lines"}
        print(f"evidence: {save_evidence('reading_the_core', results | {'limits': limits, 'listing': listed}, seed=0)}")
    for sentence in excesses(now):
        print(sentence, file=sys.stderr)
    return 1 if excesses(now) else 0


if __name__ == "__main__":
    sys.exit(main())
