"""Does a step cost more in a large pool, or behind a long queue?

One scheduler runs 64 sequences while the pool grows from 1,000 to 100,000 blocks and the waiting queue from
100 to 100,000 requests. Time is the thread's CPU time of `schedule` + `postprocess`. Three kinds of step are
timed: steady decode, steps that admit and finish (every request has max_tokens 1), and prefix hits out of the
middle of the free list. The figure shows medians; flat lines are the claim.

usage: python docs/benchmarks/scaling.py
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from common import save_evidence
from matplotlib.figure import Figure
from tqdm import tqdm

from nanoinfer import EngineConfig, SamplingParams, Scheduler, Sequence

SEED, BATCH, STEPS = 0, 64, 120
BLOCK_SIZE = 16
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)


def scheduler_with(num_blocks: int) -> Scheduler:
    config = EngineConfig(kvcache_block_size=BLOCK_SIZE, num_kvcache_blocks=num_blocks, max_num_seqs=BATCH)
    return Scheduler(config)


def add(scheduler: Scheduler, seq_id: int, max_tokens: int, first_token: int) -> None:
    prompt = [first_token, *range(1, 40)]
    scheduler.add(Sequence(seq_id, prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True), BLOCK_SIZE))


def time_steps(scheduler: Scheduler, steps: int) -> list[float]:
    """Microseconds of CPU of each step."""
    times = []
    for _ in range(steps):
        start = time.thread_time()
        plan = scheduler.schedule()
        scheduler.postprocess(plan, [7] * len(plan.rows))
        times.append((time.thread_time() - start) * 1e6)
    return times


def steady_decode(num_blocks: int, queue: int) -> float:
    """BATCH sequences decode; `queue` more wait behind a head that does not fit."""
    scheduler = scheduler_with(num_blocks)
    for i in range(BATCH):
        add(scheduler, i, 400, i)
    time_steps(scheduler, 2)
    blocked = (num_blocks - 10) * BLOCK_SIZE
    giant = SamplingParams(max_tokens=1, ignore_eos=True)
    scheduler.config = EngineConfig(**scheduler.config.to_dict() | {"max_model_len": blocked + 2})
    scheduler.add(Sequence(BATCH, [5] * blocked, giant, BLOCK_SIZE))
    for i in range(queue):
        add(scheduler, BATCH + 1 + i, 1, i)
    time_steps(scheduler, 3)  # the first look at the giant hashes its blocks once
    return statistics.median(time_steps(scheduler, STEPS))


def admit_and_finish(num_blocks: int, queue: int) -> float:
    """Every step admits BATCH requests that finish in it; `queue` requests stand behind them."""
    scheduler = scheduler_with(num_blocks)
    for i in range(BATCH * (STEPS + 3) + queue):
        add(scheduler, i, 1, i)
    time_steps(scheduler, 3)
    return statistics.median(time_steps(scheduler, STEPS))


def prefix_hits(num_blocks: int, queue: int) -> float:
    """As `admit_and_finish`, but all prompts are equal: each admission revives blocks inside the free list."""
    scheduler = scheduler_with(num_blocks)
    for i in range(BATCH * (STEPS + 3) + queue):
        add(scheduler, i, 1, 0)
    time_steps(scheduler, 3)
    return statistics.median(time_steps(scheduler, STEPS))


KINDS = {"steady decode": steady_decode, "admit and finish": admit_and_finish, "prefix hits": prefix_hits}


def plot(results: dict[str, Any], path: Path) -> None:
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    highest = max(max(values) for axis in ("pool", "queue") for values in results[axis].values())
    labels = {"pool": "blocks in the pool", "queue": "requests waiting"}
    for axes, axis in zip(panels, labels, strict=True):
        for (kind, values), marker in zip(results[axis].items(), "os^", strict=True):
            axes.plot(SIZES, values, marker=marker, label=kind)
        axes.set(xscale="log", xlabel=labels[axis], ylim=(0, 1.1 * highest))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(f"CPU time per step of {BATCH}\nsequences (microseconds)")
    panels[1].legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    results: dict[str, Any] = {"sizes": SIZES, "batch": BATCH, "pool": {}, "queue": {}}
    work = [(axis, kind, size) for axis in ("pool", "queue") for kind in KINDS for size in SIZES]
    for axis, kind, size in tqdm(work, desc="measuring", disable=None):
        blocks, queue = (size, 100) if axis == "pool" else (2_000, size)
        results[axis].setdefault(kind, []).append(round(KINDS[kind](blocks, queue), 1))
    for axis in ("pool", "queue"):
        for kind, values in results[axis].items():
            print(f"{axis:<6} {kind:<17} {values} us; largest / smallest {values[-1] / values[0]:.2f}")
    path = save_evidence("scaling", results, SEED)
    picture = path.with_suffix(".png")
    plot(results, picture)
    print(f"evidence: {path} and {picture.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
