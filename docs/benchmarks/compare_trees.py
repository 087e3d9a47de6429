"""Does this tree do what another one does, and as fast?

outputs  runs the same scenarios in both trees (`run_scenarios.py`, in a process for each tree) and compares every
         output and every recorded step and event, times left out. Where they differ, the tree before runs once more, to
         see whether it equals itself. A GPU runs Qwen3-0.6B's shape with random weights, a CPU the tiny model.
speed    runs works A and B of `nanoinfer bench` in both trees in turns, round after round: output tokens per second, as
         medians over all repetitions, and their ratio. With --device cpu it is a dry run of a few tiny requests.

usage: python docs/benchmarks/compare_trees.py outputs --before PATH [--device cpu] [--only SCENARIO ...] [--json]
       python docs/benchmarks/compare_trees.py speed --before PATH [--rounds N] [--repeat N] [--json]
       python docs/benchmarks/compare_trees.py outputs speed --before PATH --json

PATH is a checkout, such as `git worktree add PATH COMMIT` makes. The exit status is 1 if a scenario differs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any

from common import commit_of, save_evidence

HERE = Path(__file__).resolve().parent
SEED = 7  # of the engines in the scenarios
TINY = "nanoinfer/models/tiny"
WORKS = {
    "cuda": {"A": [], "B": ["--requests", "1,32,256"]},
    "cpu": {"B": ["--requests", "1,4", "--input-len", "16", "--output-len", "8", "--bandwidth", "0.02"]},
}
Json = dict[str, Any]
Round = dict[str, dict[str, list[float]]]  # by work and tree: tokens per second of each repetition


def python(tree: Path, *arguments: object) -> str:
    """What Python prints with that tree's package, in an empty folder: one named `nanoinfer` would hide the tree's.

    Raises:
        RuntimeError: it failed; gives the end of what it said.
    """
    path = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
        )
    if done.returncode:
        raise RuntimeError(f"in {tree}, {' '.join(command)} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def check(tree: Path) -> None:
    """Raises: RuntimeError: the package would be imported from somewhere else."""
    found = python(tree, "-c", "import nanoinfer; print(nanoinfer.__file__)").strip()
    if not Path(found).resolve().is_relative_to(tree):
        raise RuntimeError(f"{tree} holds no package nanoinfer (found {found}); give the path of a checkout")


# ---- outputs ------------------------------------------------------------------------------


def run_scenarios(tree: Path, options: argparse.Namespace, only: list[str]) -> Json:
    """What every scenario gave in a tree; both trees load the same tiny model."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        python(tree, HERE / "run_scenarios.py", options.device, options.tree / TINY, file, *only)
        found: Json = json.loads(file.read_text())
    return found


def compare(before: Json, now: Json) -> Json:
    """Sizes of one scenario, and the first difference in its outputs and in its steps."""
    differences = [
        f"{part}[{i}]: before {excerpt(a, b)}, now {excerpt(b, a)}"
        for part in ("outputs", "steps")
        for i, a, b in first_difference(before[part], now[part])
    ]
    return {
        "equal": not differences,
        "differences": differences,
        "requests": len(now["outputs"]),
        "finished": dict(Counter(output["finish_reason"] for output in now["outputs"])),
        "tokens": sum(len(output["token_ids"]) for output in now["outputs"]),
        "steps": len(now["steps"]),
        "preemptions": sum(len(step.get("preempted", [])) for step in now["steps"]),
        "events": sum(len(step["events"]) for step in now["steps"]),
    }


def first_difference(before: list[Any], now: list[Any]) -> list[tuple[int, str, str]]:
    pairs = enumerate(zip_longest(before, now, fillvalue="nothing"))
    return next(([(i, str(a), str(b))] for i, (a, b) in pairs if a != b), [])


def excerpt(text: str, other: str) -> str:
    """Around the first character in which they differ."""
    at = next((k for k, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return f"…{text[max(0, at - 80) : at + 160]}"


def outputs(trees: dict[str, Path], options: argparse.Namespace) -> Json:
    before, now = (run_scenarios(tree, options, options.only) for tree in trees.values())
    results = {name: compare(before[name], now[name]) for name in before}
    if different := [name for name, result in results.items() if not result["equal"]]:
        for name, again in run_scenarios(trees["before"], options, different).items():
            results[name]["before_equals_itself"] = compare(before[name], again)["equal"]
    for name, r in results.items():
        print(
            f"{'equal' if r['equal'] else 'DIFFERENT':<10}{name:<48}{r['requests']:>4} requests{r['tokens']:>7} tokens"
            f"{r['steps']:>6} steps{r['preemptions']:>4} preemptions{r['events']:>6} events"
        )
        print(*(f"    {difference}\n" for difference in r["differences"]), sep="", end="")
        if "before_equals_itself" in r:
            print(f"    the tree before equals itself: {r['before_equals_itself']}")
    print(f"{len(results) - len(different)} of {len(results)} scenarios equal")
    return results


# ---- speed --------------------------------------------------------------------------------


def bench(tree: Path, options: argparse.Namespace, work: str, extra: list[str]) -> Json:
    """The evidence of `nanoinfer bench`; the short work B is repeated three times as often."""
    gpu = options.device == "cuda"
    model = ["--shape", "qwen3-0.6b", "--dtype", "bfloat16"] if gpu else ["--model", options.tree / TINY]
    repeat = options.repeat * (1 if work == "A" else 3)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        command = ["-m", "nanoinfer", "bench", *model, "--work", work, *extra, "--repeat", repeat, "--out", out]
        python(tree, *command)
        evidence: Json = json.loads(out.read_text())
    return evidence


def speed(trees: dict[str, Path], options: argparse.Namespace) -> Json:
    rounds: list[Round] = []
    settings: Json = {}
    for _ in range(options.rounds):
        found: Round = {}
        for work, extra in WORKS[options.device].items():
            for name, tree in trees.items():
                evidence = bench(tree, options, work, extra)
                settings = {key: evidence[key] for key in ("machine", "versions", "engine")}
                for case in evidence["cases"]:
                    key = work if work == "A" else f"B{case['requests']}"
                    found.setdefault(key, {})[name] = case["engines"]["nanoinfer"]["tokens_per_second"]
        rounds.append(found)
    summary = summarise(rounds)
    print(f"{'work':<6}{'before':>12}{'now':>12}{'ratio':>9}   by round")
    for key, row in summary.items():
        by_round = " ".join(f"{ratio:.4f}" for ratio in row["ratio_by_round"])
        print(f"{key:<6}{row['before']:>12,.1f}{row['now']:>12,.1f}{row['ratio']:>9.4f}   {by_round}")
    return {"summary": summary, "rounds": rounds, "bench": settings}


def summarise(rounds: list[Round]) -> Json:
    """By work: medians over all rounds, their ratio, that of each round, and (fastest - slowest) / median."""
    summary = {}
    for key in rounds[0]:
        pooled = {name: [speed for r in rounds for speed in r[key][name]] for name in ("before", "now")}
        medians = {name: statistics.median(speeds) for name, speeds in pooled.items()}
        by_round = [statistics.median(r[key]["now"]) / statistics.median(r[key]["before"]) for r in rounds]
        spread = {f"{name}_spread": (max(s) - min(s)) / medians[name] for name, s in pooled.items()}
        summary[key] = medians | {"ratio": medians["now"] / medians["before"], "ratio_by_round": by_round} | spread
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["outputs", "speed"])
    parser.add_argument("--before", type=Path, required=True, metavar="PATH", help="the checkout to compare with")
    parser.add_argument("--tree", type=Path, default=HERE.parents[1], help="the checkout compared (default: this one)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="default: %(default)s")
    parser.add_argument("--only", nargs="+", default=[], metavar="SCENARIO", help="outputs: these scenarios alone")
    parser.add_argument("--rounds", type=int, default=3, help="speed: default %(default)s")
    parser.add_argument("--repeat", type=int, default=3, help="speed: runs of work A in a round (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="write the evidence")
    options = parser.parse_args()
    options.tree = options.tree.resolve()
    trees = {"before": options.before.resolve(), "now": options.tree}
    for tree in trees.values():
        check(tree)
    results = {what: {"outputs": outputs, "speed": speed}[what](trees, options) for what in options.what}
    if options.json:
        commits = {name: commit_of(tree) for name, tree in trees.items()}
        evidence = {"device": options.device, "commits": commits, **results}
        print(f"evidence: {save_evidence('compare_trees', evidence, SEED)}")
    return 0 if all(result["equal"] for result in results.get("outputs", {}).values()) else 1


if __name__ == "__main__":
    sys.exit(main())
