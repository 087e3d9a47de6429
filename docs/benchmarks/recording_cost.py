"""What does recording cost the core, the engine without its model?

Three versions of the same code run the same work: with all calls that serve a recording deleted from the source (an
AST pass over the step loop, the scheduler and the block manager), with recording off (the do-nothing recorder), and
with recording on. Time is the thread's CPU time of whole steps, with a runner that answers at once, so other programs
on the machine do not count. The versions take turns; ratios are medians over the rounds.

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

from common import save_evidence
from tqdm import tqdm

from nanoinfer.config import EngineConfig
from nanoinfer.core import block_manager, engine_core, scheduler
from nanoinfer.core.engine_core import EngineCore
from nanoinfer.core.overlap.flight import Done
from nanoinfer.core.plan import StepPlan
from nanoinfer.sampling_params import SamplingParams

SEED, SEQUENCES, STEPS = 0, 256, 200


class _DropRecording(ast.NodeTransformer):
    """Takes out the calls of a recorder, what is done for a recording if there is one, and the times of a step's parts,
    which nothing but a trace shows."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:  # the names are those that ast looks for
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return node
        if ast.unparse(call.func.value) == "self.recorder":
            return ast.copy_location(ast.Pass(), node)
        if call.func.attr == "lap":  # what it is called on may do work: `self._launch().lap(...)`
            return ast.copy_location(ast.Expr(call.func.value), node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        if ast.unparse(node.test) == "self._recording":
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return node.orelse if ast.unparse(node.test) == "self._recording" else self.generic_visit(node)


def without_recording(module: ModuleType) -> ModuleType:
    """A copy of `module` in which nothing is told to a recorder or a recording."""
    assert module.__spec__ is not None
    assert module.__file__ is not None
    tree = _DropRecording().visit(ast.parse(Path(module.__file__).read_text()))
    copy = importlib.util.module_from_spec(module.__spec__)
    exec(compile(ast.fix_missing_locations(tree), module.__file__, "exec"), copy.__dict__)
    return copy


class _NoModel:
    def launch(self, plan: StepPlan) -> Done:
        return Done([7] * len(plan.rows))


def make_core(config: EngineConfig, deleted: bool) -> EngineCore:
    """The core as it is, or with all that serves a recording deleted."""
    e, s, b = (without_recording(m) if deleted else m for m in (engine_core, scheduler, block_manager))
    core: EngineCore = e.EngineCore(
        config, _NoModel(), time.perf_counter, "seconds", "simulator", s.Scheduler, b.BlockManager
    )
    return core


def busy_core(deleted: bool) -> EngineCore:
    """With SEQUENCES requests that outlive the measurement."""
    config = EngineConfig(kvcache_block_size=16, num_kvcache_blocks=SEQUENCES * 64, max_num_seqs=SEQUENCES)
    core = make_core(config, deleted)
    rng = random.Random(SEED)
    for _ in range(SEQUENCES):
        prompt = [rng.randrange(10_000) for _ in range(rng.randint(16, 48))]
        core.add(prompt, SamplingParams(max_tokens=900, ignore_eos=True))
    return core


def time_per_step(core: EngineCore, steps: int) -> float:
    """Microseconds of CPU per step."""
    start = time.thread_time()
    for _ in range(steps):
        core.step()
    return (time.thread_time() - start) / steps * 1e6


def measure(rounds: int) -> dict[str, list[float]]:
    """Times of the three versions, round by round, each round on fresh cores."""
    times: dict[str, list[float]] = {"deleted": [], "off": [], "on": []}
    for index in tqdm(range(rounds), desc="rounds", disable=None):
        cores = {name: busy_core(deleted=name == "deleted") for name in times}
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
    core = busy_core(deleted=False)
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
    parser.add_argument("--rounds", type=int, default=25, help="fresh cores per version (default: %(default)s)")
    rounds = parser.parse_args().rounds
    times = measure(rounds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = {
        name: statistics.median(t / base for t, base in zip(times[name], times["deleted"], strict=True))
        for name in ("off", "on")
    }
    sizes = bytes_per_step()
    results = {
        "sequences": SEQUENCES,
        "steps_per_round": STEPS,
        "rounds": rounds,
        "microseconds_per_step": medians,
        "ratio_to_deleted": ratio,
        "trace_bytes_per_step": sizes,
    }
    for name, value in medians.items():
        print(f"{name:<8} {value:8.1f} us per step of {SEQUENCES} sequences")
    print(f"off / deleted {ratio['off']:.4f}   on / deleted {ratio['on']:.3f}")
    print(f"bytes per step {sizes}")
    print(f"evidence: {save_evidence('recording_cost', results, SEED)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
