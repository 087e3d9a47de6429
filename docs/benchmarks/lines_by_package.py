"""Lines of Python and JavaScript by package, of one checkout or of two side by side.

A line is counted once in total and, unless it is blank, once more. A package's row counts all below it; rows of the
packages in it stand indented, and what is no package's own is `(top level)`. The wing of the core, `core/overlap`, is
also taken off the core, so that what a first evening must read has a row of its own.

usage: python docs/benchmarks/lines_by_package.py [--tree PATH] [--before PATH] [--files] [--json]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from common import commit_of, save_evidence

SUFFIXES = (".py", ".js")
CORE, WING = "core", "core/overlap"
TOP, WITHOUT_WING, ALL = "(top level)", "core without core/overlap", "all"


@dataclass
class Lines:
    """How many lines some files have together."""

    non_blank: int = 0
    total: int = 0

    def add(self, other: Lines, times: int = 1) -> None:
        self.non_blank += times * other.non_blank
        self.total += times * other.total


def lines_of(path: Path) -> Lines:
    lines = path.read_text(encoding="utf-8").splitlines()
    return Lines(sum(bool(line.strip()) for line in lines), len(lines))


def files_of(tree: Path) -> dict[str, Lines]:
    """The lines of each source file below `nanoinfer/`. Raises FileNotFoundError if there are none."""
    root = tree / "nanoinfer"
    paths = sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES)
    if not paths:
        raise FileNotFoundError(f"{root} holds no source files; give the path of a checkout")
    return {path.relative_to(root).as_posix(): lines_of(path) for path in paths}


def by_package(files: dict[str, Lines]) -> dict[str, Lines]:
    """The lines of each package, those of the packages in it included, and of all together."""
    packages: dict[str, Lines] = {}
    for file, lines in files.items():
        folders = [parent.as_posix() for parent in Path(file).parents[:-1]]  # without the root
        for package in (*(folders or [TOP]), ALL):
            packages.setdefault(package, Lines()).add(lines)
    if CORE in packages:
        packages[WITHOUT_WING] = Lines()
        packages[WITHOUT_WING].add(packages[CORE])
        packages[WITHOUT_WING].add(packages.get(WING, Lines()), -1)
    return packages


def order(packages: set[str]) -> list[str]:
    """Packages by name, each before those in it; the sums last."""
    last = [name for name in (TOP, ALL) if name in packages]
    return sorted(packages - set(last), key=lambda name: name.replace(" ", "~").split("/")) + last


def table(columns: dict[str, dict[str, Lines]]) -> list[str]:
    """A row for each package of any tree; with two trees also the change of the non-blank lines."""
    rows = ["{:<28}".format("non-blank / total") + "".join(f"{name:>18}" for name in columns)]
    for package in order(set().union(*columns.values())):
        counts = [packages.get(package, Lines()) for packages in columns.values()]
        title = "  " * package.count("/") + package
        cells = "".join(f"{lines.non_blank:>9,} /{lines.total:>7,}" for lines in counts)
        rows.append(f"{title:<28}{cells}{change(counts)}")
    return rows


def change(counts: list[Lines]) -> str:
    """From the first to the last, if there are two."""
    first, last = counts[0].non_blank, counts[-1].non_blank
    percent = f" {100 * (last / first - 1):+6.1f} %" if first else ""
    return f"{last - first:>+8,}{percent}" if len(counts) > 1 else ""


def moved_files(before: dict[str, Lines], now: dict[str, Lines]) -> list[str]:
    """The files that only one of two trees has, with their non-blank lines."""
    went = [f"  - {lines.non_blank:5} {file}" for file, lines in before.items() if file not in now]
    came = [f"  + {lines.non_blank:5} {file}" for file, lines in now.items() if file not in before]
    return ["", "files that went:", *went, "files that came:", *came]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).resolve().parents[2]
    parser.add_argument("--tree", type=Path, default=here, help="checkout to count (default: this one)")
    parser.add_argument("--before", type=Path, metavar="PATH", help="another checkout, to compare it with")
    parser.add_argument("--files", action="store_true", help="with --before: also list the files that went and came")
    parser.add_argument("--json", action="store_true", help="write the evidence")
    options = parser.parse_args()
    trees = ({"before": options.before} if options.before else {}) | {"now": options.tree}
    files = {column: files_of(tree) for column, tree in trees.items()}
    columns = {column: by_package(counted) for column, counted in files.items()}
    print(*table(columns), sep="\n")
    if options.files and options.before:
        print(*moved_files(files["before"], files["now"]), sep="\n")
    if options.json:
        results = {
            column: {
                "commit": commit_of(trees[column]),
                "packages": {package: vars(packages[package]) for package in order(set(packages))},
            }
            for column, packages in columns.items()
        }
        print(f"evidence: {save_evidence('lines_by_package', results, seed=0)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
