"""Ranks that `torchrun` has started, on one machine or on several.

Every rank runs the user's script. Where it makes its engine, rank 0 goes on as the leader; the others serve it from
inside the constructor, and when it is closed they leave the script by SystemExit.
"""

from __future__ import annotations

import os

import torch
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from nanoinfer.parallel.group import FOREVER, ProcessRanks

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def started_by_torchrun(size: int) -> bool:
    """Whether this process is one of `size` that torchrun has started.

    Raises:
        ValueError: it is one of another number.
    """
    if not all(name in os.environ for name in VARIABLES):
        return False
    world = int(os.environ["WORLD_SIZE"])
    if world not in (1, size):
        raise ValueError(
            f"tensor_parallel_size={size}, but torchrun has started {world} processes (WORLD_SIZE); "
            f"start {size} of them, or run the script without torchrun"
        )
    return world == size


def local_rank() -> int:
    """This process's number on its machine: the number of its GPU."""
    return int(os.environ["LOCAL_RANK"])


def torchrun_ranks(size: int, device: torch.device) -> ProcessRanks:
    """This process among the others.

    Raises:
        RuntimeError: the ranks have served an engine already.
    """
    rank = int(os.environ["RANK"])
    store: Store
    store, _, _ = next(rendezvous("env://", rank, size, timeout=FOREVER))
    store = PrefixStore("nanoinfer", store)
    if rank == 0 and store.add("engines", 1) > 1:
        raise RuntimeError(
            f"an engine with tensor_parallel_size={size} was made before in this run of torchrun: its other ranks "
            "have served that one and are gone; start the script anew for another"
        )
    return ProcessRanks(store, rank, size, device)
