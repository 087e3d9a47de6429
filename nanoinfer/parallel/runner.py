"""The runner of rank 0: what it computes, the other ranks compute too.

scheduler --> plan --> HostStep --+--> compute (rank 0) --> tokens
                                  |      | sum, sum, ... concat
                                  +--> compute (rank 1), which samples the same tokens
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
from torch.distributed import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from nanoinfer.config import EngineConfig
from nanoinfer.core.interrupt import uninterrupted
from nanoinfer.core.overlap.in_flight import Done
from nanoinfer.models.config import load_config
from nanoinfer.models.parallel import check_divisible
from nanoinfer.parallel.group import FOREVER, ProcessRanks, RanksLost
from nanoinfer.parallel.launcher import Workers
from nanoinfer.parallel.worker import HOST, serve
from nanoinfer.runner.device import resolve_device
from nanoinfer.runner.host_step import HostStep
from nanoinfer.runner.in_flight import InFlight
from nanoinfer.runner.model_runner import ModelRunner

TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
CLOSE_LIMIT = timedelta(seconds=10)
NOTICE_SECONDS = 5.0  # between a broken connection and the end of the process behind it


class Team:
    """Rank 0's hold on the others.

    Args:
        ranks: this rank among all.
        workers: their processes; None where torchrun has started and watches them.
    """

    def __init__(self, ranks: ProcessRanks, workers: Workers | None = None) -> None:
        self.ranks, self.workers, self.owner = ranks, workers, os.getpid()
        if workers:
            workers.on_loss = ranks.abort

    def check(self) -> None:
        """Raise RuntimeError if a worker has ended."""
        if self.workers and self.workers.lost.is_set():
            raise self.workers.failure()

    def cause(self, error: BaseException) -> BaseException:
        """What to raise for an error: which worker ended and how, if it came of that, else the error itself."""
        if not self.workers or not isinstance(error, RuntimeError):
            return error
        lost = self.workers.lost.wait(NOTICE_SECONDS if isinstance(error, RanksLost) else 0)
        return self.workers.failure() if lost else error

    def give_up(self) -> None:
        """End the other ranks at once."""
        if self.workers:
            self.workers.kill()
        self.ranks.abort()

    def close(self) -> None:
        """Tell the other ranks to end, and wait until they are gone. A second call does nothing."""
        if os.getpid() != self.owner:  # a fork of the user's process: the workers are not its own
            return
        if self.workers:
            self.workers.ending = True
        try:
            if not self.ranks.lost:
                with suppress(RanksLost):
                    self.ranks.broadcast(None)
                    self.ranks.flush(CLOSE_LIMIT)
        finally:
            if self.workers:
                self.workers.wait()
            self.ranks.close()


class ParallelRunner(ModelRunner):
    """A ModelRunner that leads the other ranks.

    An error in the middle of a step, an interrupt too, closes the engine, because the other ranks would wait for the
    rest of the step. Ctrl-C therefore waits until the step is enqueued (on the CPU: computed).

    Args:
        config: as for ModelRunner.
        model_dir: as for ModelRunner.
        team: the other ranks.

    Raises:
        RuntimeError: a worker failed or was killed; with its exit code and what it said.
    """

    def __init__(self, config: EngineConfig, model_dir: Path, team: Team) -> None:
        self.team = team
        self.end_of_team = weakref.finalize(self, end, team, weakref.ref(self))  # even without a call of close()
        try:
            super().__init__(config, model_dir, team.ranks)
            team.check()
        except BaseException as error:
            self.end_of_team.detach()
            cause = team.cause(error)
            team.give_up()
            team.close()
            if cause is error:
                raise
            raise cause from error

    def enter(self, step: HostStep, began: float) -> Done | InFlight:
        """Compute a step on all ranks, or on GPUs begin to. Ctrl-C waits until all ranks have the step."""
        with uninterrupted():
            try:
                self.team.ranks.broadcast(step)
                entered = super().enter(step, began)
                self.team.ranks.flush()
                return entered
            except BaseException as error:
                cause = self.team.cause(error)
                self.give_up()
                if cause is error:
                    raise
                raise cause from error

    def check(self) -> None:
        """Raise RuntimeError, and close everything, if a worker has ended."""
        try:
            self.team.check()
        except RuntimeError:
            self.give_up()
            raise

    def give_up(self) -> None:
        self.team.give_up()
        self.close()

    def close(self) -> None:
        """Give the memory of all ranks back and end their processes; closing twice is fine."""
        self.end_of_team()


def end(team: Team, runner: Callable[[], ParallelRunner | None]) -> None:
    """Give back rank 0's memory, and then everything that the ranks share."""
    alive = runner()
    if alive:
        ModelRunner.close(alive)
    team.close()
    if alive:  # else its graphs go right after this
        team.ranks.wait_for_abort()


def lead_or_serve(config: EngineConfig, model_dir: Path) -> ParallelRunner:
    """The runner of rank 0, with the other ranks ready.

    Under torchrun every rank runs the user's script, on one machine or on several, and the other ranks call this too:
    they serve until rank 0 closes, and leave the script by SystemExit.

    Raises:
        ValueError: the model cannot be cut into that many parts, or there are fewer GPUs; before anything starts.
        RuntimeError: a worker failed; with its exit code and what it said.
    """
    size = config.tensor_parallel_size
    check_divisible(load_config(model_dir), size)
    if started_by_torchrun(size):
        ranks = torchrun_ranks(size, resolve_device(config.device, int(os.environ["LOCAL_RANK"])))
        if ranks.rank > 0:
            serve(config, model_dir, ranks)
            raise SystemExit(0)
        return ParallelRunner(config, model_dir, Team(ranks))
    device = resolve_device(config.device)
    if device.type == "cuda" and size > torch.cuda.device_count():
        raise ValueError(
            f"tensor_parallel_size={size} needs {size} GPUs, torch finds {torch.cuda.device_count()}; "
            "use fewer ranks, or torchrun on several machines"
        )
    workers = Workers(size, config, model_dir)
    try:
        ranks = ProcessRanks(workers.store, 0, size, device, HOST)
    except BaseException:
        workers.kill()
        raise
    return ParallelRunner(config, model_dir, Team(ranks, workers))


def started_by_torchrun(size: int) -> bool:
    """Whether this process is one of `size` that torchrun has started. Raises ValueError if it has started another
    number."""
    if not all(name in os.environ for name in TORCHRUN_VARIABLES):
        return False
    world = int(os.environ["WORLD_SIZE"])
    if world not in (1, size):
        raise ValueError(
            f"tensor_parallel_size={size}, but torchrun has started {world} processes (WORLD_SIZE); "
            f"start {size} of them, or run the script without torchrun"
        )
    return world == size


def torchrun_ranks(size: int, device: torch.device) -> ProcessRanks:
    """This process among those of torchrun. Raises RuntimeError if they have served an engine already."""
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
