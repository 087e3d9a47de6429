"""What does recording cost the core, the engine without its model?

Three versions of the same code run the same work: with all calls that serve a recording deleted from the source (an
AST pass over every file of the core), with recording off (the do-nothing recorder), and with recording on. Time is the
thread's CPU time of whole steps, with a runner that answers at once, so other programs on the machine do not count. The
versions take turns; ratios are medians over the rounds.

usage: python docs/benchmarks/recording_cost.py [--rounds N]
"""

from __future__ import annotations

import argparse
import ast
import random
import statistics
import sys
import tempfile
import time
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from common import save_evidence
from tqdm import tqdm

import nanoinfer
from nanoinfer.config import EngineConfig
from nanoinfer.core.engine_core import EngineCore
from nanoinfer.core.overlap.in_flight import Done
from nanoinfer.core.overlap.loop import OverlappedCore
from nanoinfer.core.plan import StepPlan, StepResult
from nanoinfer.sampling_params import SamplingParams

SEED, SEQUENCES, STEPS = 0, 256, 200
CORE = "nanoinfer.core"


class _DropRecording(ast.NodeTransformer):
    """Takes out the calls of a recorder, what is done for a recording if there is one, and the times of a step and its
    parts, which nothing but a trace shows."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:  # the names are those that ast looks for
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return node
        tells = ast.unparse(call.func.value) == "self.recorder" or call.func.attr == "lap"
        return ast.copy_location(ast.Pass(), node) if tells else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "StepTimes":
            return ast.copy_location(ast.Assign(node.targets, ast.Constant(None)), node)
        if ast.unparse(node.targets[0]).endswith("times.mark"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        if ast.unparse(node.test) == "self._builder":
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return node.orelse if ast.unparse(node.test) == "self._builder" else self.generic_visit(node)


class _Cutter(SourceFileLoader):
    """Loads a module from its source, with nothing told to a recorder or a recording."""

    def get_code(self, fullname: str) -> CodeType:
        """Compiled afresh: cached bytecode is that of the whole source."""
        path = self.get_filename(fullname)
        tree = _DropRecording().visit(ast.parse(self.get_data(path)))
        return compile(ast.fix_missing_locations(tree), path, "exec")


class _CoreFinder(MetaPathFinder):
    """Finds the modules of the core, and lets `_Cutter` load them."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if is_of_core(fullname) else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Cutter(fullname, spec.origin)
        return spec


def is_of_core(module: str) -> bool:
    return module == CORE or module.startswith(f"{CORE}.")


def without_recording(name: str) -> ModuleType:
    """A copy of a module of the core, and of all that it imports from there, in which nothing is recorded."""
    whole = {name: sys.modules.pop(name) for name in list(sys.modules) if is_of_core(name)}
    finder = _CoreFinder()
    sys.meta_path.insert(0, finder)
    try:
        return import_module(name)
    finally:
        sys.meta_path.remove(finder)
        for cut in [cut for cut in sys.modules if is_of_core(cut)]:
            del sys.modules[cut]
        sys.modules.update(whole)
        nanoinfer.core = whole[CORE]  # an import binds it anew


class _NoModel:
    """Answers at once, and always with the same token."""

    def run(self, plan: StepPlan) -> StepResult:
        return StepResult([7] * len(plan.rows))

    def launch(self, plan: StepPlan) -> Done:
        return Done(self.run(plan))


def make_core(config: EngineConfig, deleted: bool) -> EngineCore:
    """The core as it is, or with all that serves a recording deleted."""
    loop = OverlappedCore if config.overlap else EngineCore
    module = without_recording(loop.__module__) if deleted else sys.modules[loop.__module__]
    core: EngineCore = getattr(module, loop.__name__)(config, _NoModel(), time.perf_counter, "seconds", "simulator")
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
