"""What a failing test shows: the step, the queues and blocks then, what was expected and why."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from nanoinfer.trace.trace import Trace

MOST = 12  # entries of a queue, or sequences with a table, that are shown


class Explanation(NamedTuple):
    """The message of a failing check, the rule in it, and a hint to show in place of the test's own."""

    message: str
    why: str = ""
    hint: str = ""


class _Running:
    """The test that runs: its name, where its trace goes, and how its last failure was explained.

    Each test is graded in a process of its own, so there is one.
    """

    folder: Path | None = None
    test: str = "test"
    explanation: Explanation | None = None


def traces_go_to(folder: Path | None, test: str) -> None:
    """From now on a failure of `test` writes its trace to `folder`; nowhere when that is None."""
    _Running.folder, _Running.test = folder, test


def explanation_of(error: BaseException) -> Explanation | None:
    """How the failure that raised `error` was explained, if it was. Pytest indents a message and adds to its end."""
    last = _Running.explanation
    words = last.message.split() if last else []
    return last if str(error).split()[: len(words)] == words else None


def expect(what: str, got: Any, expected: Any, hint: str = "") -> None:
    """Raise AssertionError unless `got` equals `expected`.

    `what` says what is compared, in words or as it stands in code; `hint` is shown in place of the test's own.
    """
    if got != expected:
        raise AssertionError(explained(f"{what}: expected {expected}, got {got}", hint=hint))


def explained(message: str, why: str = "", hint: str = "") -> str:
    """`message`, for the check that is about to fail; see Explanation."""
    _Running.explanation = Explanation(message, why, hint)
    return message


def trace_file(folder: Path, test: str) -> Path:
    """Where the trace of a failing test lies; tests are told by name, with their parameters."""
    return folder / f"failed-{re.sub(r'[^A-Za-z0-9_.-]+', '-', test).strip('-')}.jsonl"


def explain_failure(trace: Trace, step: int, expected: str, why: str, whose: str = "yours") -> str:
    """The message of a failing assertion: `assert ok, explain_failure(trace, 3, "2 rows", "the budget allows them")`.

    Writes the trace beside the submission; the message says how to open it in the explorer.

    Args:
        trace: the run.
        step: the step that shows the failure; negative counts from the end.
        expected: what should be seen there.
        why: one sentence: the rule that says so.
        whose: whose run it is.
    """
    parts = [f"step {step}: expected {expected}"]
    with suppress(IndexError):
        step = trace.step_index(step)
        parts = [f"step {step}: expected {expected}", f"{whose}: " + "\n".join(_happened(trace, step))]
    path = _write(trace)
    see = f'\nsee it: from nanoinfer import Trace; Trace.load("{path}").explore(step={step})' if path else ""
    return explained("\n".join([*parts, f"why: {why}"]) + see, why)


def _happened(trace: Trace, index: int) -> list[str]:
    step = trace.steps[index]
    lines = [f"{step.phase} step at clock {step.clock:g}; {step.stop}; {step.decode_stop}"]
    lines += [f"preempted {p.victim} for {p.on_behalf_of} ({p.rule})" for p in step.preempted[:MOST]]
    try:
        rows = ", ".join(f"{row.seq_id}: {row.num_computed}+{row.num_scheduled}" for row in step.rows[:MOST])
        state = trace.state(index)
    except ValueError as error:
        return [*lines, f"the state cannot be rebuilt: {error}"]
    tables = ", ".join(f"{seq_id}: {table}" for seq_id, table in list(state.block_tables.items())[:MOST])
    return [
        *lines,
        f"rows (tokens computed + scheduled): {rows or 'none'}",
        f"afterwards waiting {_short(state.waiting)}, running {_short(state.running)}",
        f"block tables {tables or 'none'}; {len(state.free_blocks)} free {_short(state.free_blocks)}",
    ]


def _short(values: list[int]) -> str:
    more = f" and {len(values) - MOST} more" if len(values) > MOST else ""
    return f"{values[:MOST]}{more}"


def _write(trace: Trace) -> Path | None:
    if _Running.folder is None:
        return None
    path = trace_file(_Running.folder, _Running.test)
    try:
        trace.save(path)
    except OSError:  # a folder that cannot be written to: the message stands without the file
        return None
    return path
