"""Assignment 6: loads in which many requests share a prefix and others come once."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from nanoinfer.core.block_manager import BlockManager
from nanoinfer.core.policies import POLICIES
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.course.grading.failures import explain_failure
from nanoinfer.course.kits.requests import Requests, limits, tokens
from nanoinfer.sim.simulate import simulate
from nanoinfer.trace.state import snapshot
from nanoinfer.trace.trace import Trace

SIZE = 4  # slots of a block
PREFIX = 8 * SIZE  # tokens that a family of requests shares
POOL = 24  # blocks: room for a prefix and one prompt of a burst, not for two of each


@dataclass
class Load:
    """Requests that follow each other, with time for each.

    Attributes:
        work: what `simulate` takes.
        families: the ids of the requests of each family: those that begin with the same prefix.
    """

    rng: random.Random
    work: Requests = field(default_factory=lambda: Requests([], [], [], limits(SIZE, POOL, budget=64)))
    families: list[list[int]] = field(default_factory=list)
    fresh: Iterable[int] = field(default_factory=lambda: count(1000))  # token ids not used before
    clock: int = 0

    def new_tokens(self, length: int) -> list[int]:
        return [token for token, _ in zip(self.fresh, range(length), strict=False)]

    def new_family(self) -> list[int]:
        """The prefix of a family; those who `ask` from now on belong to it."""
        self.families.append([])
        return self.new_tokens(PREFIX)

    def ask(self, prefix: list[int]) -> None:
        """A request that begins with `prefix`."""
        self.families[-1].append(len(self.work.prompts))
        self._add([*prefix, *self.new_tokens(self.rng.randint(1, SIZE))])

    def burst(self) -> None:
        """Prompts that come once; together they are more than the pool holds."""
        for _ in range(self.rng.randint(2, 3)):
            self._add(self.new_tokens(self.rng.randint(10 * SIZE, 13 * SIZE)))

    def _add(self, prompt: list[int]) -> None:
        self.work.prompts.append(prompt)
        self.work.params.append(tokens(2))
        self.work.arrivals.append(self.clock)
        self.clock += self.rng.randint(2, 4)


def popular(seed: int, rounds: int = 12) -> Load:
    """One family, asked for again and again; between two such requests comes a burst."""
    load = Load(random.Random(seed))
    prefix = load.new_family()
    load.ask(prefix)
    for _ in range(rounds):
        load.ask(prefix)
        load.burst()
    load.ask(prefix)
    return load


def moving(seed: int, rounds: int = 8) -> Load:
    """Two families, one after the other: what was popular in the first half is not asked for any more."""
    load = Load(random.Random(seed))
    for _ in range(2):
        prefix = load.new_family()
        for _ in range(rounds):
            load.ask(prefix)
            load.ask(prefix)
            load.burst()
    return load


def computed(trace: Trace, seq_ids: Iterable[int]) -> int:
    """Tokens that were computed for these requests: what the prefix cache did not save."""
    ids = set(seq_ids)
    return sum(row.num_scheduled for step in trace.steps for row in step.rows if row.seq_id in ids)


def found(trace: Trace) -> list[int]:
    """For each request, the tokens that the prefix cache gave it when it was admitted first."""
    cached: dict[int, int] = {}
    for step in trace.steps:
        for row in step.rows:
            cached.setdefault(row.seq_id, row.num_cached)
    return [cached[seq_id] for seq_id in sorted(cached)]


def one_by_one(manager: type[BlockManager], prompts: list[list[int]], blocks: int, **more: Any) -> Trace:
    """Requests of one new token; each comes when the one before is done. Blocks have four slots."""
    arrivals = [10 * i for i in range(len(prompts))]
    settings = limits(SIZE, blocks) | more
    return simulate(prompts, tokens(1), arrivals=arrivals, block_manager_cls=manager, **settings)


def expect_found(trace: Trace, expected: list[int], why: str) -> None:
    """Raise AssertionError unless the cache gave the requests these numbers of tokens."""
    got = found(trace)
    for seq_id, (is_found, wanted) in enumerate(zip(got, expected, strict=True)):
        if is_found != wanted:
            step = next(step.index for step in trace.steps if seq_id in step.columns.seq_id)
            words = f"{wanted} cached tokens for request {seq_id}, got {is_found}"
            raise AssertionError(explain_failure(trace, step, words, why))


def run_folded(manager: type[BlockManager], why: str, **run: Any) -> Trace:
    """`simulate`, and after every step compare the live state with what the events say.

    Raises:
        AssertionError: they differ; names the step and the attribute.
    """
    seen: list[Scheduler] = []

    class Seen(POLICIES[run.get("policy", "prefill_first")]):  # type: ignore[misc]  # a class that is looked up
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            seen.append(self)

    def look(trace: Trace, index: int) -> None:
        told, live = vars(trace.state(index)), vars(snapshot(seen[0]))
        for name in live:
            words = f"{name} {told[name]}, as the events say, got {live[name]}"
            assert told[name] == live[name], explain_failure(trace, index, words, why)

    return simulate(**run, scheduler_cls=Seen, block_manager_cls=manager, on_step=look)
