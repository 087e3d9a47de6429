"""Run one piece of work in a process of its own, with limits: whatever happens to it, its caller goes on.

The process is forked, which takes milliseconds where a new interpreter takes a second. It is no sandbox: the work
may read and write what its user may. It ends after `seconds`, first by an exception that says where it was, then by
a signal that nothing can catch.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, NamedTuple, NoReturn

EARLY = 0.1  # share of its time after which work is stopped in a function in which other work was stopped before
GRACE = 1.0  # seconds between the exception and the signal
MAX_FILE = 64 << 20  # bytes one file may grow to, the captured output among them
MAX_ANSWER = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What the work may take.

    Attributes:
        seconds: wall time.
        memory_mb: megabytes on top of what the process holds already.
        endless: functions in which other work was stopped before; who is in one of them early on is stopped at once.
    """

    seconds: float = 5
    memory_mb: int = 1024
    endless: frozenset[str] = frozenset()


class Place(NamedTuple):
    """Where the work was at a certain moment: the name of the function, and what gives the words for a message.

    The words are asked for only when the work is stopped: they may read from objects that it is just changing.
    """

    function: str = ""
    words: Callable[[], str] = str


Stopped = Literal["stopped", "stopped_early"]


@dataclass(frozen=True)
class Ending:
    """How the work ended.

    Attributes:
        kind: "answered"; "failed", when it raised or the process died; "stopped", when its time was over;
            "stopped_early", when it was in a function in which other work was stopped before.
    """

    kind: Literal["answered", "failed"] | Stopped
    answer: Any = None  # what the work returned
    message: str = ""  # why there is no answer
    function: str = ""  # in which it was stopped, where that is known


class OutOfTime(BaseException):
    """Raised in the work when its time is over; no Exception, so that `except Exception` does not swallow it."""

    def __init__(self, kind: Stopped, message: str, function: str) -> None:
        super().__init__(message)
        self.kind, self.function = kind, function


Look = Callable[[FrameType | None], Place]


def run_isolated(work: Callable[[], Any], limits: Limits, where: Look = lambda _: Place()) -> Ending:
    """Call `work`, which returns something that JSON can hold, in a forked process; `where` tells where a frame is."""
    token = secrets.token_hex(8)  # an answer without it was not written by this function
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _work_and_exit(work, limits, where, writer, token)
    os.close(writer)
    try:
        data, status = _read(reader, pid, limits.seconds + GRACE)
    finally:
        os.close(reader)
    return _ending(data, status, token, limits)


def _read(reader: int, pid: int, seconds: float) -> tuple[bytes, int | None]:
    """What the process wrote, and its wait status; None if it had to be killed."""
    data, status, deadline = b"", None, time.monotonic() + seconds
    while not data.endswith(b"\n") and len(data) < MAX_ANSWER and (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([reader], [], [], min(left, 0.2))
        chunk = os.read(reader, 1 << 16) if ready else b""
        data += chunk
        if not chunk and (ready or _is_over(pid)):  # the pipe may stay open in a process that this one has started
            break
    else:
        if not data.endswith(b"\n"):
            _kill(pid)
            os.waitpid(pid, 0)
            return data, None
    deadline = time.monotonic() + GRACE
    # The pipe closes a moment before the process is gone.
    while not data.endswith(b"\n") and not _is_over(pid) and time.monotonic() < deadline:
        time.sleep(0.002)
    _kill(pid)
    _, status = os.waitpid(pid, 0)
    return data, status


def _is_over(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill(pid: int) -> None:
    """The process and all it has started."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _ending(data: bytes, status: int | None, token: str, limits: Limits) -> Ending:
    with suppress(ValueError, TypeError, KeyError):
        answer = json.loads(data)
        if answer["token"] == token:
            return Ending(**answer["ending"])
    if status is None:
        return Ending("stopped", message=f"stopped after {limits.seconds:g} s: it did not come to an end")
    if os.WIFSIGNALED(status):
        return Ending("failed", message=f"crashed: the process ended with {_signal_name(os.WTERMSIG(status))}")
    code = os.waitstatus_to_exitcode(status)
    return Ending("failed", message=f"ended the whole process (exit code {code}) before it was done")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---- in the forked process ----------------------------------------------------------------


def _work_and_exit(work: Callable[[], Any], limits: Limits, where: Look, writer: int, token: str) -> NoReturn:
    """Never returns into the caller's stack, whatever `work` does; what it needs at the end it holds already."""
    leave, write, dumps = os._exit, os.write, json.dumps
    ending: dict[str, Any]
    try:
        os.setpgid(0, 0)
        _apply(limits, where)
        ending = {"kind": "answered", "answer": work()}
    except OutOfTime as error:
        ending = {"kind": error.kind, "message": str(error), "function": error.function}
    except MemoryError:
        ending = {"kind": "failed", "message": f"ran out of memory: a test may take {limits.memory_mb} MB"}
    except BaseException as error:
        ending = {"kind": "failed", "message": f"{type(error).__name__}: {error}"}
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        data = dumps({"token": token, "ending": ending}).encode() + b"\n"
        while data:
            data = data[write(writer, data) :]
    finally:
        leave(0)


def _apply(limits: Limits, where: Look) -> None:
    faulthandler.disable()  # a crash is reported by its signal, not by a page on the terminal
    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    for kind, limit in (
        (resource.RLIMIT_AS, held + (limits.memory_mb << 20)),
        (resource.RLIMIT_CPU, int(limits.seconds + GRACE) + 2),
        (resource.RLIMIT_FSIZE, MAX_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))

    first = EARLY * limits.seconds
    rest = limits.seconds - first

    def look(_signal: int, frame: FrameType | None) -> None:
        nonlocal rest
        place = where(frame)
        if place.function not in limits.endless and rest > 0:
            signal.setitimer(signal.ITIMER_REAL, rest)
            rest = 0
            return
        if not rest:
            raise OutOfTime("stopped", f"stopped after {limits.seconds:g} s{place.words()}", place.function)
        early = "an earlier test was stopped in the same function, so this one was not given its full time"
        raise OutOfTime("stopped_early", f"stopped after {first:g} s{place.words()}; {early}", place.function)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, first)
