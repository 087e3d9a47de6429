"""What one tree's scheduler asks of a reader, as JSON: the half of `reading_the_core.py` that runs inside that tree.

Nothing here knows which files a tree has: it builds a Scheduler, watches Python run it, and looks at what was entered.
Two things are watched, both with blocks of 4 token slots, a pool of 12 blocks and 16 tokens a step:

- two calls of `schedule()` with three requests of 7 tokens: the first one, which prefills, and the decode in which each
  of the three takes a new block (their ninth token);
- for coverage, the making of a scheduler and every `schedule()` of a crowded run: 24 requests of up to 20 prompt and 20
  new tokens, with chunks, refusals and preemptions.

usage: PYTHONPATH=TREE python docs/benchmarks/measure_core.py TREE
"""

from __future__ import annotations

import ast
import builtins
import json
import random
import sys
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import nanoinfer
from nanoinfer.config import EngineConfig
from nanoinfer.core.plan import StepPlan
from nanoinfer.core.scheduler import Scheduler
from nanoinfer.core.sequence import Sequence
from nanoinfer.sampling_params import SamplingParams

SEED, BLOCK_SIZE, BLOCKS, BUDGET = 0, 4, 12, 16
CONTAINERS = (list, dict, tuple, set, str, int, deque)
NOT_OURS = set(dir(builtins)).union(*map(dir, CONTAINERS))


class Event(NamedTuple):
    """A call, line or return of the project's code, where it stands, and in which function."""

    kind: str
    file: str
    line: int
    function: str

    @property
    def place(self) -> str:
        return f"{self.file}::{self.function}"


def watched(call: Callable[[], Any], tree: Path) -> tuple[Any, list[Event]]:
    """What `call` returns, and each event of code below `tree` while it ran, in order."""
    events: list[Event] = []
    files: dict[str, str | None] = {}

    def name_of(filename: str) -> str | None:
        path = Path(filename)
        return str(path.relative_to(tree)) if path.is_relative_to(tree) else None

    def trace(frame: FrameType, kind: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in files:
            files[code.co_filename] = name_of(code.co_filename)
        file = files[code.co_filename]
        if file is None:
            return None
        events.append(Event(kind, file, frame.f_lineno, code.co_qualname))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return result, events


# ---- the runs that are watched ------------------------------------------------------------


def new_scheduler(requests: list[tuple[int, int]]) -> Scheduler:
    """With requests of (prompt, new) tokens in `waiting`, no two of them with a common prefix."""
    config = EngineConfig(
        kvcache_block_size=BLOCK_SIZE, num_kvcache_blocks=BLOCKS, max_num_batched_tokens=BUDGET, max_num_seqs=4
    )
    scheduler = Scheduler(config)
    for i, (prompt, new) in enumerate(requests):
        params = SamplingParams(max_tokens=new, ignore_eos=True)
        scheduler.add(Sequence(i, range(100 * i, 100 * i + prompt), params, BLOCK_SIZE))
    return scheduler


def take_in(scheduler: Scheduler, plan: StepPlan) -> None:
    scheduler.postprocess(plan, [7] * len(plan.rows))


def two_calls(tree: Path) -> dict[str, list[Event]]:
    """The events of a prefill and of a decode."""
    scheduler = new_scheduler([(7, 9)] * 3)
    plan, prefill = watched(scheduler.schedule, tree)
    assert (plan.phase, len(plan.rows)) == ("prefill", 2), plan
    while {len(seq) for seq in scheduler.sequences.values()} != {9}:
        take_in(scheduler, plan)
        plan, decode = watched(scheduler.schedule, tree)
    assert (plan.phase, len(plan.rows)) == ("decode", 3), plan
    return {"prefill": prefill, "decode": decode}


def crowded_run(tree: Path) -> tuple[Scheduler, StepPlan, set[str], set[str]]:
    """A scheduler and its last plan; what was entered while it was made, and by all calls of its `schedule()`."""
    rng = random.Random(SEED)
    requests = [(rng.randint(1, 20), rng.randint(1, 20)) for _ in range(24)]
    scheduler, events = watched(lambda: new_scheduler([]), tree)
    making, scheduling = set(entered(events)), set[str]()
    for seq in list(new_scheduler(requests).sequences.values()):
        scheduler.add(seq)
    preempted = 0
    while not scheduler.is_finished():
        plan, events = watched(scheduler.schedule, tree)
        scheduling.update(entered(events))
        preempted += len(plan.preempted)
        take_in(scheduler, plan)
    assert preempted, "a run without preemption does not see all of the scheduler"
    return scheduler, plan, making, scheduling


def entered(events: list[Event]) -> list[str]:
    """The functions that were called, in the order of their first calls."""
    return list(dict.fromkeys(event.place for event in events if event.kind == "call"))


def moves(events: list[Event]) -> list[str]:
    """The changes of file between an event and the next."""
    pairs = [(a, b) for a, b in pairwise(events) if a.file != b.file]
    return [f"{a.file}:{a.line} {a.function} -> {b.file}:{b.line} {b.function}" for a, b in pairs]


# ---- the source that was entered ----------------------------------------------------------


def functions_of(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Every function of a module by its qualified name."""
    found: dict[str, ast.FunctionDef] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef):
                found[prefix + child.name] = child
                inner = f"{prefix}{child.name}.<locals>."
            elif isinstance(child, ast.ClassDef):
                inner = f"{prefix}{child.name}."
            visit(child, inner)

    visit(tree, "")
    return found


def names_used(function: ast.FunctionDef) -> set[str]:
    """Names and attributes in a function, without its parameters, its variables and what is Python's own."""
    own = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} - own
    return (names | {n.attr for n in ast.walk(function) if isinstance(n, ast.Attribute)}) - NOT_OURS


def names_defined(module: ast.Module) -> set[str]:
    """Functions, classes, variables and attributes that a module gives a name to."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def assigns(module: ast.Module, name: str) -> bool:
    """Whether `name` is given its value at the top of a module."""
    targets = [t for node in module.body if isinstance(node, ast.Assign) for t in node.targets]
    targets += [node.target for node in module.body if isinstance(node, ast.AnnAssign)]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def measure(tree: Path) -> dict[str, Any]:
    """Every measure of `reading_the_core.py` as the list of what was counted.

    Raises:
        RuntimeError: another nanoinfer than that of `tree` was imported.
    """
    if not Path(nanoinfer.__file__).is_relative_to(tree):
        raise RuntimeError(f"{nanoinfer.__file__} was imported, which is not in {tree}")
    sources = {str(path.relative_to(tree)): path.read_text() for path in sorted((tree / "nanoinfer").rglob("*.py"))}
    modules = {file: ast.parse(source) for file, source in sources.items()}
    core = [file for file in modules if file.startswith("nanoinfer/core/")]
    calls = two_calls(tree)
    scheduler, plan, making, scheduling = crowded_run(tree)
    nouns = {file_of(noun) for noun in (scheduler.block_manager, plan, plan.rows[0], plan.rows[0].seq)}
    to_read = [file for file in core if any(place.startswith(f"{file}::") for place in making | scheduling)]
    registry = [file for file in core if assigns(modules[file], "POLICIES")]
    counted = sorted({*to_read, *registry} - nouns)
    functions = {f"{file}::{name}": f for file in counted for name, f in functions_of(modules[file]).items()}
    used = set[str]().union(*(names_used(functions[place]) for place in scheduling & functions.keys()))
    known = set[str]().union(*map(names_defined, modules.values()))
    return {
        "lines": [f"{f}:{i}" for f in counted for i, line in enumerate(sources[f].splitlines(), 1) if line.strip()],
        "functions": list(functions),
        "helpers": sorted(scheduling & functions.keys()),
        "names": sorted((used & known) - {type(scheduler).__name__}),
        "files_to_read": to_read,
        **{f"{phase}_moves": moves(events) for phase, events in calls.items()},
        **{f"{phase}_functions": entered(events) for phase, events in calls.items()},
    }


def file_of(instance: object) -> str:
    return type(instance).__module__.replace(".", "/") + ".py"


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]).resolve())))
