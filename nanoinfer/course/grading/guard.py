"""What a submission may not do while it is graded: change the checker, read what is held out, start processes.

This keeps mistakes and the usual tricks from counting. It is no sandbox: Python code that means harm can do it.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

STARTS_PROCESSES = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen")
READS = ("open", "os.listdir", "os.scandir")


class Tampered(Exception):
    """The submission did what it may not."""


class Guard:
    """An audit hook, which Python cannot take back; for the forked process that runs one test.

    Args:
        held_out: folders whose files are not for the submission.
        processes: whether it may start other processes.

    Attributes:
        armed: the grader itself reads sources when it describes a failure, and disarms the guard first.
        seen: what was refused; a submission may catch the exception, but not take this back.
    """

    def __init__(self, held_out: Iterable[Path], processes: bool) -> None:
        self.folders = tuple(str(folder.resolve()) + os.sep for folder in held_out)
        self.processes = processes
        self.armed = True
        self.seen: list[str] = []

    def install(self) -> None:
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        if event in READS and self._is_held_out(args[0]):
            self._refuse(f"reads {Path(os.fsdecode(args[0])).name}, which belongs to the grader")
        elif event in STARTS_PROCESSES and not self.processes:
            self._refuse("starts another process, which a submission may not")

    def check(self) -> None:
        """Raises Tampered if anything was refused, caught or not."""
        if self.seen:
            raise Tampered(f"the submission {self.seen[0]}")

    def _is_held_out(self, path: Any) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False  # a file descriptor, or None for the current folder
        return (os.path.realpath(os.fsdecode(path)) + os.sep).startswith(self.folders)

    def _refuse(self, what: str) -> None:
        self.seen.append(what)
        raise PermissionError(f"the submission {what}")


class Seal:
    """The functions and classes that a grade rests on, as they are now: of nanoinfer, pytest, Python and `modules`."""

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        ours = [module for name, module in list(sys.modules.items()) if name.split(".")[0] in ("nanoinfer", "pytest")]
        self._sealed = [
            (owner, name, key, value, _inside(value))
            for module in {id(m): m for m in (*ours, builtins, *modules)}.values()
            for name, owner in _owners(module)
            for key, value in list(vars(owner).items())
            if callable(_function(value))
        ]

    def check(self) -> None:
        """Raises Tampered, naming the first function or class that is not what it was."""
        for owner, name, key, value, inside in self._sealed:
            if vars(owner).get(key) is not value or _inside(value) != inside:
                raise Tampered(f"the submission replaces {name}.{key}, which belongs to the grader")


def _owners(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The module, and the classes it defines."""
    yield module.__name__, module
    for key, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield f"{module.__name__}.{key}", value


def _function(value: Any) -> Any:
    """What a method or a property calls."""
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    return value.fget if isinstance(value, property) else value


def _inside(value: Any) -> tuple[Any, ...]:
    """What can be exchanged in a function that stays the same object."""
    function = _function(value)
    return (function.__code__, function.__defaults__) if isinstance(function, FunctionType) else ()
