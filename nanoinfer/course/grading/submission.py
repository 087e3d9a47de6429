"""Find and load what a student handed in: a file, a notebook, or a folder with one of them."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType, ModuleType

import pytest

from nanoinfer.course.grading.assignments import Assignment
from nanoinfer.course.grading.failures import explanation_of
from nanoinfer.course.grading.isolate import OutOfTime, Place

MODULE = "student"


class Refused(Exception):
    """The submission cannot be graded; the message says why."""


class Unwritten(NotImplementedError):
    """A function or method of the submission is not implemented yet; the message names it."""


def find_submission(path: Path, name: str) -> Path:
    """The file to grade in `path` for the assignment called `name`.

    In a folder that is student.py, or the only notebook, or the same in notebooks/assignments/NAME or in NAME.

    Raises:
        ValueError: there is none.
    """
    if path.is_file():
        return path
    if not path.exists():
        raise ValueError(f"no submission {path}: there is no such file or folder")
    folders = (path, path / "notebooks" / "assignments" / name, path / name)
    for folder in folders:
        for candidate in (folder / "student.py", folder / f"{name}.py", folder / f"{name}.ipynb"):
            if candidate.is_file():
                return candidate
    raise ValueError(f"no submission in {path}: expected student.py, {name}.py or {name}.ipynb there or in {name}/")


def load(path: Path, assignment: Assignment) -> ModuleType:
    """The module under test. Files beside it can be imported, but shadow nothing.

    Raises:
        Refused: it does not run, or answers with nanoinfer's own component.
    """
    sys.path.append(str(path.parent))
    module = _load_notebook(path) if path.suffix == ".ipynb" else _load_file(path)
    for name, component in assignment.own.items():
        _check_own(module, name, component)
    return module


def _load_file(path: Path) -> ModuleType:
    spec = spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise Refused(f"{path.name} is not a Python file or a notebook")
    module = module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def _load_notebook(path: Path) -> ModuleType:
    """Run the code cells one after the other in one module. One that fails does not stop those after it."""
    module = ModuleType(MODULE)
    module.__dict__["failed_cells"] = failed = []
    sys.modules[MODULE] = module
    for number, source in enumerate(code_cells(path), 1):
        try:
            exec(compile(source, f"cell {number}", "exec"), module.__dict__)
        except (OutOfTime, MemoryError):
            raise
        except BaseException as error:
            failed.append(f"cell {number} fails with {describe(error)}")
    return module


def code_cells(path: Path) -> list[str]:
    """The code of a notebook, without what only IPython understands and without calls of check()."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path.name} is not a notebook: {error}") from error
    return ["\n".join(map(_plain, source.splitlines())) for source in sources]


def _plain(line: str) -> str:
    bare = line.strip()
    return "" if bare.startswith(("%", "!", "?", "check(")) or bare.endswith("?") else line


def _check_own(module: ModuleType, name: str, component: str) -> None:
    """A class that is nanoinfer's own, or is built on it, is no answer."""
    answer = getattr(module, name, None)
    if answer is None:
        raise Refused(_missing(module, f"class {name}"))
    home, _, attribute = component.rpartition(".")
    original = getattr(import_module(home), attribute)
    if isinstance(answer, type) and original in answer.__mro__:
        raise Refused(f"{name} is built on nanoinfer's own {attribute}; write the class yourself")
    if any(value is original for value in vars(module).values()):
        raise Refused(f"the file imports nanoinfer's own {attribute}; write the class yourself")


def _missing(module: ModuleType, what: str) -> str:
    return "; ".join([f"the submission has no {what}", *getattr(module, "failed_cells", [])])


def describe(error: BaseException) -> str:
    """An exception in one or a few lines, with the place in the submission."""
    if isinstance(error, NotImplementedError):
        return str(unwritten(error))
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType) and error.obj.__name__ == MODULE:
        return _missing(error.obj, f"{error.name}")
    if isinstance(error, SyntaxError):
        return f"syntax error in line {error.lineno}: {error.msg}: {(error.text or '').strip()}"
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r}) was called{_place(error)}"
    explanation = explanation_of(error)
    words = explanation.message if explanation else str(error).strip()
    if isinstance(error, (AssertionError, pytest.fail.Exception)):
        return words or f"an assertion failed{_place(error)}"
    return f"{type(error).__name__}: {words}{_place(error)}"


def unwritten(error: NotImplementedError) -> Unwritten:
    """`error` as an Unwritten: the function that raised it is not implemented yet."""
    if isinstance(error, Unwritten):
        return error
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return Unwritten(f"{frames[-1].f_code.co_qualname if frames else ''} is not implemented yet")


def _place(error: BaseException) -> str:
    _, words = _innermost(reversed([*traceback.walk_tb(error.__traceback__)]))
    return f" ({words})" if words else ""


def _innermost(stack: Iterable[tuple[FrameType, int]]) -> tuple[str, str]:
    """The function of the first frame in `stack` that is the submission's, and its line. Reads no file."""
    home = getattr(sys.modules.get(MODULE), "__file__", None)
    for frame, line in stack:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if file == home or file.startswith("cell "):
            return name, f"line {line} of {Path(file).name}, in {name}"
    return "", ""


def still_at(frame: FrameType | None) -> Place:
    """Where the submission was when its time was over, and the queues of the scheduler that was at work."""
    function, words = _innermost(traceback.walk_stack(frame))
    return Place(function, lambda: (f", still at {words}" if words else "") + _queues(frame))


def _queues(frame: FrameType | None) -> str:
    """The queues of the scheduler that is at work in `frame` or in one that called it."""
    while frame is not None:
        with suppress(Exception):  # most frames are no method of a scheduler
            owner = frame.f_locals["self"]
            waiting, running = ([seq.seq_id for seq in queue] for queue in (owner.waiting, owner.running))
            return f"; waiting {waiting}, running {running}, {len(owner.block_manager.free_block_ids)} free blocks"
        frame = frame.f_back
    return ""
