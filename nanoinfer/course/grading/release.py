"""What students get: starters cut from the solutions, public tests, notebooks without outputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"


def starter(solution: str) -> str:
    """The source of a solution without its marked regions.

    A region inside a function becomes `raise NotImplementedError`, one outside becomes a comment.

    Raises:
        ValueError: the marks do not pair up; names the line.
    """
    return "\n".join(_cut(solution)) + "\n"


def _cut(source: str) -> Iterator[str]:
    inside = _lines_of_functions(source)
    begun = 0
    for number, line in enumerate(source.splitlines(), 1):
        mark = line.strip()
        if mark in (BEGIN, END) and (mark == BEGIN) == bool(begun):
            raise ValueError(f"line {number}: {mark} without its counterpart")
        if mark == BEGIN:
            begun = number
            indent = line[: len(line) - len(line.lstrip())]
            yield f"{indent}# YOUR CODE HERE"
            if number in inside:
                yield f'{indent}raise NotImplementedError("to be written")'
        elif mark == END:
            begun = 0
        elif not begun:
            yield line
    if begun:
        raise ValueError(f"line {begun}: {BEGIN} without its counterpart")


def _lines_of_functions(source: str) -> set[int]:
    """Numbers of the lines that lie inside a function."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return found
