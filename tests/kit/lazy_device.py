"""A device that runs plans late and in order, and a driver of the overlapped loop over it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

from kit.helpers import live_state, make_core
from kit.workloads import Workload, random_workload
from nanoinfer import Sequence, Trace
from nanoinfer.core.engine_core import EngineCore
from nanoinfer.core.overlap.in_flight import PENDING
from nanoinfer.core.overlap.scheduler import is_pending
from nanoinfer.core.plan import StepPlan, StepResult

GARBAGE = -2


class DeviceError(Exception):
    """What a lost device raises."""


class LazyDevice:
    """Computes nothing before somebody waits, then everything launched until there, in order.

    All it knows of a plan is what it was at launch. Each slot of its KV cache holds the whole prefix of its token, so
    a row that reads a slot which is not its own, or not written yet, is noticed. Tokens come from the whole context.
    """

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.slots: list[Any] = [None] * (work.config.num_kvcache_blocks * work.config.kvcache_block_size)
        self.queue: deque[Launch] = deque()
        self.sampled: dict[int, int] = {}  # by the plan run last
        self.num_fed = 0
        self.launch_errors: list[BaseException] = []  # raised by the next launches, before or after they took place
        self.result_errors: list[BaseException] = []

    def launch(self, plan: StepPlan) -> Launch:
        error = self.launch_errors.pop() if self.launch_errors else None
        if error and error.args == ("before",):
            raise error
        launch = Launch(self, [_Job(row) for row in plan.rows])
        self.queue.append(launch)
        if error:
            raise error
        return launch

    def run_until(self, launch: Launch) -> None:
        while launch.token_ids is None:
            self.queue[0].token_ids = self._run(self.queue[0].jobs)
            self.queue.popleft()

    def _run(self, jobs: list[_Job]) -> list[int]:
        for job in jobs:
            if job.token_ids[-1] == PENDING:
                job.token_ids[-1] = self.sampled[job.seq_id]
                self.num_fed += 1
            prefixes = [tuple(job.token_ids[: p + 1]) for p in range(job.end)]
            found = [self.slots[slot] for slot in job.slots[: job.start]]
            assert found == prefixes[: job.start], f"sequence {job.seq_id} reads KV that is not its own or not written"
            job.prefixes = prefixes
        for job in jobs:
            for position in range(job.start, job.end):
                self.slots[job.slots[position]] = job.prefixes[position]
        for job in jobs:
            assert [self.slots[slot] for slot in job.slots] == job.prefixes, "a batch mate wrote into its blocks"
        ids = [self.work.token(job.token_ids[: job.end]) for job in jobs]
        self.sampled = dict(zip([job.seq_id for job in jobs], ids, strict=True))
        return ids

    def fail(self) -> None:
        """Everything in flight is lost, and what it would have written is rubbish."""
        for launch in self.queue:
            for job in launch.jobs:
                for position in range(job.start, job.end):
                    self.slots[job.slots[position]] = GARBAGE
        self.queue.clear()


class _Job:
    """A row as it was at launch."""

    def __init__(self, row: Any) -> None:
        self.seq_id, self.token_ids = row.seq_id, list(row.seq.token_ids)
        self.start, self.end = row.num_computed, row.num_computed + row.num_scheduled
        table, size = row.block_table, row.seq.block_size
        self.slots = [table[p // size] * size + p % size for p in range(self.end)]
        self.prefixes: list[Any] = []
        assert PENDING not in self.token_ids[:-1]
        assert PENDING not in self.token_ids or (row.chunk is None and row.num_scheduled == 1), "an unknown prefill"


@dataclass(eq=False)
class Launch:
    device: LazyDevice
    jobs: list[_Job]
    token_ids: list[int] | None = None

    def result(self) -> StepResult:
        error = self.device.result_errors.pop() if self.device.result_errors else None
        if isinstance(error, Exception):
            self.device.fail()
        if error:
            raise error
        self.device.run_until(self)
        assert self.token_ids is not None
        return StepResult(self.token_ids)


@dataclass
class Run:
    """What came of a random run."""

    work: Workload
    core: EngineCore
    trace: Trace
    states: dict[int, dict[str, Any]]  # live, after each step was decided
    done: dict[int, Sequence]  # by the request's place in the workload
    aborted: dict[int, Sequence]
    wasted: int  # rows in flight for a sequence that an earlier step's token, or an abort, ended


class Driver:
    """Drives a workload through the overlapped loop, counting wasted rows by its own means."""

    def __init__(self, seed: int, trouble: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.work = random_workload(self.rng)
        self.device = LazyDevice(self.work)
        settings = vars(self.work.config) | {"overlap": True}
        self.core = make_core(type(self.work.config)(**settings), self.device)
        self.trouble, self.states = trouble, dict[int, dict[str, Any]]()
        self.wasted: set[tuple[int, int]] = set()  # step, sequence
        self._watch()

    def _watch(self) -> None:
        scheduler, core = self.core.scheduler, self.core
        advance, resolve = scheduler.advance, scheduler.resolve

        def watched_advance(plan: StepPlan) -> None:
            advance(plan)
            if core.trace:
                self.states[core._launched.times.index] = live_state(scheduler)

        def watched_resolve(plan: StepPlan, token_ids: list[int]) -> None:
            before = {row.seq_id for row in plan.rows if row.seq.is_finished}
            resolve(plan, token_ids)
            ended = {row.seq_id for row in plan.rows if row.seq.is_finished} - before
            if core._launched:
                rows = core._launched.plan.rows
                self.wasted |= {(core._launched.times.index, row.seq_id) for row in rows if row.seq_id in ended}

        scheduler.advance, scheduler.resolve = watched_advance, watched_resolve  # type: ignore[method-assign]

    def abort(self, seq_id: int) -> Sequence:
        flight = self.core._awaiting
        for row in flight.plan.rows if flight else []:
            if row.seq_id == seq_id and row.chunk is None and is_pending(row.seq):
                self.wasted.add((flight.times.index, seq_id))
        return self.core.abort(seq_id)

    def run(self) -> Run:
        work, core, rng = self.work, self.core, self.rng
        trace = core.start_trace()
        index: dict[int, int] = {}  # of the request, by sequence id
        done: dict[int, Sequence] = {}
        aborted: dict[int, Sequence] = {}
        for clock in range(3000):
            for i, arrival in enumerate(work.arrivals):
                if arrival == clock:
                    index[core.add(work.prompts[i], work.params[i])] = i
            if clock in work.resets:
                core.scheduler.block_manager.reset_prefix_cache()
            for victim in [s for s in core.scheduler.sequences if index[s] == work.aborts.get(clock)]:
                aborted[index[victim]] = self.abort(victim)
            self._make_trouble(rng)
            try:
                done |= {index[seq.seq_id]: seq for seq in core.step()}
            except (DeviceError, KeyboardInterrupt):
                continue
            if clock > max(work.arrivals) and core.is_finished():
                core.stop_trace()
                return Run(work, core, trace, self.states, done, aborted, len(self.wasted))
        raise AssertionError(f"no end\n{core.scheduler}")

    def _make_trouble(self, rng: random.Random) -> None:
        if rng.random() < self.trouble:
            kind, when = rng.choice([DeviceError, KeyboardInterrupt]), rng.choice(["before", "after"])
            rng.choice([self.device.launch_errors, self.device.result_errors]).append(kind(when))
