"""What does recording cost the scheduler?

Three versions of the same code run the same work: with the recorder calls deleted from the source
(an AST pass over the scheduler and the block manager), with recording off (the do-nothing recorder),
and with recording on. Time is the thread's CPU time of `schedule` + `postprocess` (+ writing the step record
when on), so other programs on the machine do not count. The versions take turns; ratios are medians
over the rounds.

usage: python docs/benchmarks/recording_cost.py [--rounds N]
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from common import save_evidence
from tqdm import tqdm

from nanoinfer.config import EngineConfig
from nanoinfer.core import block_manager, scheduler
from nanoinfer.core.engine_core import EngineCore
from nanoinfer.core.plan import StepPlan
from nanoinfer.sampling_params import SamplingParams

SEED, SEQUENCES, STEPS = 0, 256, 200


class _DropRecorderCalls(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST:  # the name ast looks for
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("self.recorder."):
            return ast.copy_location(ast.Pass(), node)
        return node


def without_recorder_calls(module: ModuleType) -> ModuleType:
    """A copy of `module` whose `self.recorder.*(...)` statements are gone."""
    assert module.__spec__ is not None
    assert module.__file__ is not None
    tree = _DropRecorderCalls().visit(ast.parse(Path(module.__file__).read_text()))
    copy = importlib.util.module_from_spec(module.__spec__)
    exec(compile(ast.fix_missing_locations(tree), module.__file__, "exec"), copy.__dict__)
    return copy


class _NoModel:
    def run(self, plan: StepPlan) -> list[int]:
        return [7] * len(plan.rows)


def make_core(stripped: bool) -> EngineCore:
    """An engine with SEQUENCES requests that outlive the measurement."""
    config = EngineConfig(kvcache_block_size=16, num_kvcache_blocks=SEQUENCES * 64, max_num_seqs=SEQUENCES)
    s, b = (without_recorder_calls(m) if stripped else m for m in (scheduler, block_manager))
    core = EngineCore(config, _NoModel(), time.thread_time, "seconds", "simulator", s.Scheduler, b.BlockManager)
    rng = random.Random(SEED)
    for _ in range(SEQUENCES):
        prompt = [rng.randrange(10_000) for _ in range(rng.randint(16, 48))]
        core.add(prompt, SamplingParams(max_tokens=900, ignore_eos=True))
    return core


def time_per_step(core: EngineCore, steps: int) -> float:
    """Microseconds of CPU per step: schedule, postprocess and, while recording, the step record."""
    start = time.thread_time()
    for _ in range(steps):
        plan = core.scheduler.schedule()
        core.scheduler.postprocess(plan, [7] * len(plan.rows))
        if core.trace:
            core._record_step(core.trace, plan, [0.0, 0.0, 0.0, 0.0])
    return (time.thread_time() - start) / steps * 1e6


def measure(rounds: int) -> dict[str, Any]:
    """Times of the three versions, round by round, each round on fresh engines."""
    times: dict[str, list[float]] = {"deleted": [], "off": [], "on": []}
    for index in tqdm(range(rounds), desc="rounds", disable=None):
        cores = {name: make_core(stripped=name == "deleted") for name in times}
        cores["on"].start_trace()
        for core in cores.values():
            time_per_step(core, 4)  # prefill and warm up
        for chunk in range(4):  # finely interleaved, in changing order
            names = list(times)
            shift = (index + chunk) % 3
            for name in names[shift:] + names[:shift]:
                times[name].append(time_per_step(cores[name], STEPS // 4))
    return times


def bytes_per_step() -> dict[str, float]:
    """Size of a saved trace of STEPS decode steps, per step."""
    core = make_core(stripped=False)
    trace = core.start_trace()
    time_per_step(core, STEPS)
    core.stop_trace()
    with tempfile.TemporaryDirectory() as folder:
        sizes = {}
        for suffix in ("jsonl", "jsonl.gz"):
            path = Path(folder) / f"trace.{suffix}"
            trace.save(path)
            sizes[suffix] = path.stat().st_size / STEPS
    return sizes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="fresh engines per version (default: %(default)s)")
    times = measure(parser.parse_args().rounds)
    ratio = {
        name: statistics.median(t / base for t, base in zip(times[name], times["deleted"], strict=True))
        for name in ("off", "on")
    }
    results = {
        "sequences": SEQUENCES,
        "steps_per_round": STEPS,
        "rounds": len(times["off"]) // 4,
        "microseconds_per_step": {name: statistics.median(values) for name, values in times.items()},
        "ratio_to_deleted": ratio,
        "trace_bytes_per_step": bytes_per_step(),
    }
    for name, value in results["microseconds_per_step"].items():  # type: ignore[attr-defined]
        print(f"{name:<8} {value:8.1f} us per step of {SEQUENCES} sequences")
    print(f"off / deleted {ratio['off']:.4f}   on / deleted {ratio['on']:.3f}")
    print(f"bytes per step {results['trace_bytes_per_step']}")
    print(f"evidence: {save_evidence('recording_cost', results, SEED)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
