"""Which processes and ports there are, read from /proc."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def workers_of(parent: int | None = None) -> list[int]:
    """Process ids of the living workers that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command, status = (entry / "cmdline").read_bytes(), (entry / "status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        mine = int(fields["PPid"]) == (parent or os.getpid())
        if b"nanoinfer.parallel.worker" in command and mine and not fields["State"].startswith("Z"):
            found.append(int(entry.name))
    return sorted(found)


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return "\nState:\tZ" not in (Path("/proc") / str(pid) / "status").read_text()
    except OSError:
        return False


def open_sockets() -> int:
    """Sockets that this process holds: listening, or connected to somebody."""
    links = [path for path in Path("/proc/self/fd").iterdir() if os.path.lexists(path)]
    return sum("socket:" in read_link(path) for path in links)


def read_link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed in the meantime
        return ""


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true in so many seconds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
