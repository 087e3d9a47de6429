"""Small mistakes put into a solution one at a time, and the share that the public and hidden tests find.

    python tests/assignments/mutate.py a1 a2 [--seconds 300] [--json FILE]

Only the regions of a solution that students write are changed. A mistake that no test finds may change nothing that
anybody can see (an equivalent program): the survivors are listed, to be read.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from nanoinfer.course.grading.assignments import CHECKOUT, Course
from nanoinfer.course.grading.release import BEGIN, END

COURSE = Course(CHECKOUT)
JOBS = 2
NEIGHBOURS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
DELETED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Continue, ast.Break)


class Mutant(NamedTuple):
    """A solution with one mistake: its line there, what was done, and the whole source."""

    line: int
    what: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of `source` that is another program."""
    tree, lines = ast.parse(source), _solution_lines(source)
    for position, node in enumerate(ast.walk(tree)):
        if getattr(node, "lineno", 0) not in lines:
            continue
        for way in range(len(_ways(node))):
            changed = copy.deepcopy(tree)
            target = next(n for i, n in enumerate(ast.walk(changed)) if i == position)
            what, change = _ways(target)[way]
            replacement = change()
            mutated = ast.unparse(_Replace(target, replacement).visit(changed))
            if mutated != ast.unparse(tree):
                yield Mutant(node.lineno, f"{what}: {ast.unparse(node).splitlines()[0][:80]}", mutated)


def _ways(node: ast.AST) -> list[tuple[str, object]]:
    """What can be done to a node: a name, and a function that gives the node to put in its place."""
    ways = []
    if isinstance(node, ast.Compare):
        ways.append(
            ("comparison off by one", lambda: _with(node, ops=[NEIGHBOURS[type(node.ops[0])](), *node.ops[1:]]))
        )
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in NEIGHBOURS:
        ways.append(("other operator", lambda: _with(node, op=NEIGHBOURS[type(node.op)]())))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        ways.append(("one more", lambda: ast.Constant(node.value + 1)))
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        ways.append(("not", lambda: _with(node, test=ast.UnaryOp(ast.Not(), node.test))))
    if isinstance(node, ast.Call) and len(node.args) > 1 and ast.unparse(node.func) not in ("min", "max"):
        ways.append(("swapped arguments", lambda: _with(node, args=[node.args[1], node.args[0], *node.args[2:]])))
    if isinstance(node, DELETED) and not _is_docstring(node):
        ways.append(("deleted", ast.Pass))
    return ways


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    for name, value in fields.items():
        setattr(node, name, value)
    return node


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def _solution_lines(source: str) -> set[int]:
    found, inside = set(), False
    for number, line in enumerate(source.splitlines(), 1):
        inside = (inside or line.strip() == BEGIN) and line.strip() != END
        found |= {number} if inside else set()
    return found


def is_found(name: str, source: str) -> bool:
    """Whether a test fails for this source; the first that does ends the run."""
    plugin = ["-p", "nanoinfer.course.grading.plugin", "-p", "no:cacheprovider", "-c", os.devnull]
    tests = [COURSE.public_tests(name), *COURSE.hidden_tests(name)]
    with TemporaryDirectory(prefix="mutant-") as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "--tb=no", *plugin, f"--rootdir={COURSE.root}"]
        command += [f"--impl={path}", f"--course={COURSE.root}", *map(str, tests)]
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode == 1


def report(name: str, seconds: float) -> dict[str, object]:
    """The share of mutants found, of those that were run within `seconds`, in a random order."""
    source = COURSE.solution(name).read_text(encoding="utf-8")
    assert not is_found(name, ast.unparse(ast.parse(source))), "the tests fail for the solution itself"
    every = list(mutants(source))
    random.Random(0).shuffle(every)
    deadline = time.monotonic() + seconds

    def judge(mutant: Mutant) -> bool | None:
        return is_found(name, mutant.source) if time.monotonic() < deadline else None

    with ThreadPoolExecutor(JOBS) as pool:
        verdicts = list(zip(every, pool.map(judge, every), strict=True))
    run = [found for _, found in verdicts if found is not None]
    survivors = sorted((mutant.line, mutant.what) for mutant, found in verdicts if found is False)
    return {
        "mutants": len(every),
        "run": len(run),
        "found": sum(run),
        "share": round(sum(run) / len(run), 4),
        "survivors": [f"line {line}: {what}" for line, what in survivors],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Put small mistakes into solutions and count those the tests find.")
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seconds", type=float, default=300, help="time limit for each assignment")
    parser.add_argument("--json", type=Path, help="add the figures to FILE")
    arguments = parser.parse_args()
    known = arguments.json and arguments.json.exists()
    reports = json.loads(arguments.json.read_text(encoding="utf-8")) if known else {}
    for name in arguments.names:
        reports[name] = found = report(name, arguments.seconds)
        print(f"{name}: {found['found']} of {found['run']} found ({found['share']:.1%}), {found['mutants']} in all")
        print("".join(f"  survives: {line}\n" for line in found["survivors"]), end="", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(dict(sorted(reports.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
