"""What ranks exchange: activations, steps to compute, and the signal to end.

Each engine has process groups of its own, made directly on a store: the process-wide default group of
torch.distributed is left to the user, and several engines can live in one process.

This file starts no process and runs no model.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO
from typing import Any

import torch
from torch import Tensor
from torch.distributed import PrefixStore, ProcessGroupGloo, ReduceOp, Store
from torch.distributed.distributed_c10d import AllgatherOptions, AllreduceOptions

from nanoinfer.models.parallel import Ranks
from nanoinfer.runner.host_step import HostStep

FOREVER = timedelta(days=365)  # an engine may idle for days; a dead peer breaks its connections, which is noticed
ABORT_SECONDS = 10.0
# A lost peer is this engine's business: the library's own watchdog would end the user's process instead.
NCCL_SETTINGS = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}


class RanksLost(RuntimeError):
    """Another rank has ended, or was aborted, in the middle of an exchange."""


class ProcessRanks(Ranks):
    """One rank of several processes.

    Activations go through NCCL on GPUs and through gloo on the CPU, everything else through gloo.

    Args:
        store: where the ranks find each other; the same for all, and used by one engine alone.
        rank: this one's number, from 0; rank 0 leads.
        size: how many there are.
        device: of the activations.
        host: the address to connect through; None for the one that this machine's name stands for.

    Raises:
        RanksLost: from every exchange, when another rank is gone.
    """

    def __init__(self, store: Store, rank: int, size: int, device: torch.device, host: str | None = None) -> None:
        self.rank, self.size, self.device_index = rank, size, device.index or 0
        self.lost = False
        self.control = gloo_group(PrefixStore("control", store), rank, size, host)
        self.sending: list[tuple[Any, Tensor]] = []  # messages that other ranks have not taken, kept alive until then
        self.aborting: threading.Thread | None = None
        self.data = self.control
        if device.type == "cuda":
            torch.zeros(1, device=device)  # an unusable GPU raises here, before the others wait for it
            self.least(rank)
            self.data = nccl_group(PrefixStore("data", store), rank, size, device)

    # ---- between layers -------------------------------------------------------------------

    def sum(self, x: Tensor) -> Tensor:
        options = AllreduceOptions()
        options.reduceOp = ReduceOp.SUM  # type: ignore[assignment]
        options.asyncOp = False  # on the stream of the layers around it, also inside a CUDA graph
        with self.connected():
            wait(self.data.allreduce([x], options))
        return x

    def concat(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x [rows, width] of all ranks as [rows, size * width]: the very same bits on every rank."""
        rows, width = x.shape
        parts = x.new_empty((self.size * rows, width))
        options = AllgatherOptions()
        options.asyncOp = False
        with self.connected():
            wait(self.data._allgather_base(parts, x.contiguous(), options))
        return torch.cat(parts.chunk(self.size), dim=-1, out=out)

    def least(self, number: int) -> int:
        numbers = torch.tensor([number])
        options = AllreduceOptions()
        options.reduceOp = ReduceOp.MIN  # type: ignore[assignment]
        with self.connected():
            wait(self.control.allreduce([numbers], options))
        return int(numbers)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Around an exchange: any error in it means that another rank is gone."""
        if self.lost:
            raise RanksLost("another rank has ended")
        try:
            yield
        except RuntimeError as error:
            raise RanksLost(f"an exchange with the other ranks failed: {error}") from error

    # ---- messages -------------------------------------------------------------------------

    def broadcast(self, step: HostStep | None) -> None:
        """Rank 0: send a step, or None for the end, to every other rank, without waiting until they take it.

        The number of bytes goes first, so a step may have any size. The previous message must have been taken: ranks
        read messages in order, and at most one is on its way.
        """
        buffer = BytesIO()
        pickle.dump(step, buffer, protocol=5)
        body = torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)
        size = torch.tensor([len(body)])
        self.flush()
        with self.connected():
            for rank in range(1, self.size):
                self.sending += [(self.control.send([part], rank, 0), part) for part in (size, body)]

    def flush(self, limit: timedelta = FOREVER) -> None:
        """Wait until every rank has taken its message. To be called soon: a profiler notes the message's end here, and
        must not have ended before."""
        while self.sending:
            with self.connected():
                self.sending[0][0].wait(limit)
            self.sending.pop(0)

    def receive(self) -> HostStep | None:
        """Wait for rank 0's next message: a step, or None for the end."""
        size = torch.zeros(1, dtype=torch.int64)
        with self.connected():
            wait(self.control.recv([size], 0, 0))
            body = torch.empty(int(size), dtype=torch.uint8)
            wait(self.control.recv([body], 0, 0))
        step: HostStep | None = pickle.loads(body.numpy().data)
        return step

    # ---- the end --------------------------------------------------------------------------

    def abort(self) -> None:
        """Stop all waiting for the other ranks; a second call does nothing.

        NCCL's exchanges on the GPU end early, with meaningless results. NCCL then waits until the CUDA graphs that call
        it are gone, so this goes on in a thread.
        """
        if self.lost:
            return
        self.lost = True
        if self.data is not self.control:
            self.aborting = threading.Thread(target=self.data.abort, daemon=True)
            self.aborting.start()

    def close(self) -> None:
        """Drop the connections."""
        self.abort()
        self.sending.clear()
        self.data = self.control = None

    def wait_for_abort(self) -> None:
        """Wait until NCCL has given its memory back, which it does when no graph uses it any more."""
        if self.aborting:
            self.aborting.join(ABORT_SECONDS)


def wait(work: Any) -> None:
    """Wait for an exchange; on a GPU only in stream order. NCCL has nothing to wait for on the caller's own stream.

    Without a time limit: with one, NCCL would stop the CPU until the GPU gets there.
    """
    if work is not None:
        work.wait()


def gloo_group(store: Store, rank: int, size: int, host: str | None) -> Any:
    """A group for tensors in main memory."""
    if host is None:
        return ProcessGroupGloo(store, rank, size, FOREVER)
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [ProcessGroupGloo.create_device(hostname=host)]
    options._timeout = FOREVER
    return ProcessGroupGloo(store, rank, size, options)


def nccl_group(store: Store, rank: int, size: int, device: torch.device) -> Any:
    """A group for tensors on GPUs, connected when this returns."""
    from torch.distributed.distributed_c10d import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = FOREVER
    with environment(NCCL_SETTINGS):  # read when the group is made; there is no other way
        group = ProcessGroupNCCL(store, rank, size, options)
    group.eager_connect_single_device(device)
    return group


@contextmanager
def environment(settings: dict[str, str]) -> Iterator[None]:
    """Environment variables that are set inside the block, unless the user has set them."""
    ours = settings.keys() - os.environ.keys()
    os.environ.update({name: settings[name] for name in ours})
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
