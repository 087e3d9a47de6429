"""The explorer's modules by themselves, in Node: `node --test` over the files beside this one."""

import re
import shutil

import pytest
from kit.helpers import limits, params, prompt
from kit.node import TESTS, run_node
from kit.workloads import pressed_run

from nanoinfer import simulate
from nanoinfer.explore.pack import pack
from nanoinfer.trace.spans import sequence_spans
from nanoinfer.viz.block_map import _grid
from nanoinfer.viz.canvas import every


@pytest.fixture(scope="module")
def pressed():
    return pressed_run()


def test_what_is_looked_at(pressed):
    run_node("view.test.mjs", {"payload": pack(pressed)})


def counts(state):
    found = {"empty": 0, "cached": 0, "private": 0, "shared": 0}
    for block, holders in enumerate(state.ref_counts):
        cached = block in state.hash_index.values()
        found["shared" if holders > 1 else "private" if holders else "cached" if cached else "empty"] += 1
    return found


def headline(trace, i):
    return next(line for line in trace.explain(i).split("\n") if re.match(rf"Step {i} \(", line))


def words(trace):
    """(sequence, step, what is said of its bar there)."""
    for span in sequence_spans(trace):
        many = span.end - span.start > 1
        during = f" (steps {span.start}\u2013{span.end - 1})" if many else ""
        if span.kind == "decode":
            yield span.seq_id, span.start, f"decode, one token a step{during}"
        elif span.kind == "preempted":
            yield span.seq_id, span.end - 1, f"preempted, waits to be computed again{during}"
        elif span.kind == "waiting":
            yield span.seq_id, span.start, f"waiting{during}"


def test_the_rules_of_single_parts(pressed):
    state = pressed.state(20)
    grids = [(blocks, _grid(blocks, 9.0)) for blocks in (1, 8, 24, 64, 65, 1000, 1024, 16_384, 16_385, 100_000)]
    cases = {
        "payload": pack(pressed),
        "short": pack(simulate([prompt(30)], params(5), **limits(4, 20))),
        "sequences": len(pressed.requests),
        "alive": sorted([*state.waiting, *state.running]),
        "grids": [[blocks, grid.per_cell, grid.columns] for blocks, grid in grids],
        "labels": [[space, least, every(space, least)] for space in (0.01, 0.3, 4, 40) for least in (0.13, 13, 62)],
        "pools": [counts(pressed.state(i)) for i in range(len(pressed.steps))],
        "words": list(words(pressed)),
        "headlines": [headline(pressed, i) for i in range(len(pressed.steps))],
    }
    assert {re.split(r"\W", line)[0] for _, _, line in cases["words"]} == {"decode", "preempted", "waiting"}
    run_node("parts.test.mjs", cases)


def test_every_file_of_node_tests_is_run_by_a_test():
    """A file that pytest does not name would never run."""
    names = {path.name for path in TESTS.glob("*.test.mjs")}
    sources = "".join(path.read_text(encoding="utf-8") for path in TESTS.parent.rglob("test_*.py"))
    assert {name for name in names if f'"{name}"' not in sources} == set()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node 20 or newer")
def test_a_test_that_fails_in_node_fails_here():
    with pytest.raises(AssertionError, match="fail 1"):
        run_node("payload.test.mjs", [{"name": "frames", "payload": pack(simulate([])), "frames": 1}])
