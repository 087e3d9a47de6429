"""The processes of ranks 1 and up: starts them, notices when one ends, ends them.

A worker is a fresh Python that runs `nanoinfer.parallel.worker`; nothing of the user's program is imported or run
again, so a script needs no `if __name__ == "__main__"` and a notebook works as well.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from torch.distributed import TCPStore

from nanoinfer.config import EngineConfig
from nanoinfer.parallel.worker import HOST, LOST, here

START_SECONDS = 300.0  # a cold disk can take minutes to import torch
END_SECONDS = 10.0
TAIL_BYTES = 4000


class Worker:
    """One process.

    Args:
        settings: what `worker.work` reads.
    """

    def __init__(self, rank: int, settings: dict[str, Any]) -> None:
        self.rank = rank
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # has no name, and ends with its last reader
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "nanoinfer.parallel.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,  # nothing is read from it but its end
            stderr=self.log,
            env=os.environ | {"PYTHONPATH": import_path()},
            start_new_session=True,  # Ctrl-C in a terminal is for rank 0 alone
        )
        assert self.process.stdin is not None
        with suppress(BrokenPipeError), self.process.stdin as stdin:  # broken: it has ended, and `watch` notices
            stdin.write(json.dumps(settings | {"rank": rank, "parent": os.getpid()}).encode() + b"\n")

    def wait_for_end(self) -> None:
        """Return when the process is gone."""
        assert self.process.stdout is not None
        while self.process.stdout.read(1 << 16):
            continue
        self.process.wait()

    def exit_report(self) -> str:
        """How it ended, and the tail of its log."""
        code = self.process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code and code < 0 else "ended"
        self.log.seek(max(self.log.seek(0, os.SEEK_END) - TAIL_BYTES, 0))
        tail = self.log.read().decode(errors="replace").strip()
        return f"{how}, exit code {code}. " + (f"The end of its log:\n{tail}" if tail else "Its log is empty.")


class Workers:
    """All workers of one engine, and the store where they meet rank 0.

    Args:
        size: ranks in all.
        config: the engine's settings, as the user gave them.
        model_dir: the model's directory.

    Attributes:
        store: on the loopback interface, at a port that the system picked.
        on_loss: called from a thread when a worker has ended unasked; the others are killed then.
    """

    def __init__(self, size: int, config: EngineConfig, model_dir: Path) -> None:
        self.on_loss: Callable[[], None] = lambda: None
        self.size = size
        self.ending = False  # whether workers may end
        self.ended: list[Worker] = []  # in the order in which they did
        self.lost = threading.Event()
        self.store = local_store()
        settings = {
            "config": config.to_dict(),
            "model_dir": str(model_dir.resolve()),
            "size": size,
            "port": self.store.port,
        }
        self.workers: list[Worker] = []
        try:
            for rank in range(1, size):
                self.workers.append(Worker(rank, settings))
                threading.Thread(target=self.watch, args=(self.workers[-1],), daemon=True).start()
            self.wait_until_here()
        except BaseException:
            self.kill()
            raise

    def watch(self, worker: Worker) -> None:
        """Wait for the end of a worker. If it comes unasked, all waiting for that rank must stop."""
        worker.wait_for_end()
        self.ended.append(worker)
        if not self.ending:
            self.lost.set()
            self.on_loss()
            self.kill()

    def wait_until_here(self) -> None:
        """Return when every worker can be connected to. Raises RuntimeError when one fails before."""
        keys = [here(worker.rank) for worker in self.workers]
        until = time.monotonic() + START_SECONDS
        while not self.store.check(keys):
            if self.lost.wait(0.01):
                raise self.failure()
            if time.monotonic() > until:
                raise RuntimeError(
                    f"the workers of tensor_parallel_size={self.size} did not start in {START_SECONDS} s"
                )

    def failure(self) -> RuntimeError:
        """How the first worker was lost; one that ended because another was lost does not count."""
        ended = self.ended.copy()
        worker = next((worker for worker in ended if worker.process.returncode != LOST), ended[0])
        return RuntimeError(
            f"rank {worker.rank} of tensor_parallel_size={self.size} {worker.exit_report()}\n"
            "The engine is closed; make a new one"
        )

    def kill(self) -> None:
        """End every worker now."""
        self.ending = True
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.wait()

    def wait(self) -> None:
        """Let the workers end by themselves, and end those that do not."""
        try:
            with suppress(subprocess.TimeoutExpired):
                for worker in self.workers:
                    worker.process.wait(END_SECONDS)
        finally:
            self.kill()


def local_store() -> TCPStore:
    """A store that only this machine can reach, at a free port."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        port = listener.getsockname()[1]
        return TCPStore(HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def import_path() -> str:
    """This process's own, so that a worker finds what it has found, in the same order."""
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
