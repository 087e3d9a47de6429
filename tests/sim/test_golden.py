"""The default policy decides, step by step, what the published scheduler decides."""

import json
from pathlib import Path

import pytest
from kit.helpers import limits, params, prompt

from nanoinfer import Trace, simulate

CASES = json.loads((Path(__file__).parent.parent / "data" / "golden_traces.json").read_text(encoding="utf-8"))


def run(case: dict, **more: bool) -> Trace:
    requests = case["requests"]
    letters = [request["seq"] for request in requests]
    tags = [letters.index(request.get("same_prompt_as", request["seq"])) for request in requests]
    c = case["config"]
    return simulate(
        [prompt(request["prompt_tokens"], tag) for request, tag in zip(requests, tags, strict=True)],
        [params(request["max_tokens"]) for request in requests],
        arrivals=[request.get("arrival", 0) for request in requests],
        **limits(c["block_size"], c["num_blocks"], c["max_num_batched_tokens"], c["max_num_seqs"]),
        **more,
    )


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
@pytest.mark.parametrize("name", CASES)
def test_golden_trace_is_reproduced_step_by_step(name, overlap):
    """B16 (G3), B30 (G1, G2), B51 (G6), B37, B43 and B53 (P1 to P4)."""
    case = CASES[name]
    letters = [request["seq"] for request in case["requests"]]
    trace = run(case, overlap=overlap)
    for step, expected in zip(trace.steps, case["steps"], strict=False):
        got = {
            "phase": step.phase,
            "rows": [
                {
                    "seq": letters[row.seq_id],
                    "num_computed": row.num_computed,
                    "num_scheduled": row.num_scheduled,
                    "block_table": row.block_table,
                }
                for row in step.rows
            ],
            "waiting": [letters[seq_id] for seq_id in step.waiting],
            "running": [letters[seq_id] for seq_id in step.running],
            "free": step.free_blocks,
        }
        if "preempted" in expected:
            got["preempted"] = [letters[record.victim] for record in step.preempted]
        if "stop" in expected:
            got["stop"] = {"reason": step.stop.reason, **step.stop.operands}
        assert got == expected, f"{name}, step {step.index}"
    assert len(trace.steps) == len(case["steps"])


def test_preemption_traces_carry_their_stops_and_victims():
    """The file that the test above compares with has what it is meant to have."""
    for name in ("P1", "P2", "P3", "P4"):
        assert all({"preempted", "stop"} <= step.keys() for step in CASES[name]["steps"])


@pytest.mark.parametrize("name", CASES)
def test_running_a_golden_case_again_gives_the_same_trace(name):
    """B62: ids start at 0 in every run and nothing is left over from the run before."""
    first, second = run(CASES[name]), run(CASES[name])
    assert first == second
    assert list(first.requests) == list(range(len(CASES[name]["requests"])))
