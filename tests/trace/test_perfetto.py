"""The export for Perfetto is strict, complete and free of overlaps."""

import json
from itertools import combinations

import pytest
from kit.helpers import POLICIES, config, limits, make_core, params, prompt, run_all
from kit.workloads import drive

from nanoinfer import simulate


def export(trace, tmp_path):
    path = tmp_path / "t.json"
    trace.to_perfetto(path)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    document = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    return document["traceEvents"]


def check(events):
    """B91: every event is complete, and slices of a track nest or are disjoint."""
    tracks, named = {}, {"process_name": set(), "thread_name": set()}
    for event in events:
        assert {"ph", "pid", "tid", "ts", "dur", "name"} <= event.keys(), event
        assert event["dur"] > 0, event
        assert event["ts"] >= 0, event
        if event["ph"] == "M":
            named[event["name"]].add(event["pid"] if event["name"] == "process_name" else (event["pid"], event["tid"]))
            assert event["args"]["name"]
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for track, slices in tracks.items():
        for (a, b), (c, d) in combinations(slices, 2):
            disjoint = b <= c or d <= a
            nested = (a <= c and d <= b) or (c <= a and b <= d)
            assert disjoint or nested, f"slices overlap on track {track}: {(a, b)} and {(c, d)}"
    assert set(tracks) <= named["thread_name"], "a track without a name"
    assert {pid for pid, _ in tracks} <= named["process_name"]
    return tracks


@pytest.mark.parametrize(
    "cost", [None, lambda plan: 0.0, lambda plan: 1e-9, lambda plan: 0.003], ids=["steps", "0", "1e-9", "3ms"]
)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_with_preemptions_exports_without_overlaps(tmp_path, policy, cost):
    """B91: steps that take no time at all included."""
    trace = simulate(
        [prompt(n, i) for i, n in enumerate((7, 5, 6, 9))],
        params(7),
        cost_model=cost,
        policy=policy,
        **limits(4, 6, B=8),
    )
    assert any(step.preempted for step in trace.steps)
    tracks = check(export(trace, tmp_path))
    assert len(tracks) >= 1 + 4, "a track for the steps and one for each sequence"


def test_every_step_and_every_sequence_is_in_the_export(tmp_path):
    trace = simulate([prompt(n, i) for i, n in enumerate((7, 5, 6))], params(6), **limits(4, 6))
    events = export(trace, tmp_path)
    phases = [
        e["name"] for e in sorted(events, key=lambda e: e["ts"]) if e["ph"] == "X" and "stop" in e.get("args", {})
    ]
    assert phases == [step.phase for step in trace.steps]
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert all(any(str(seq_id) in name for name in names) for seq_id in trace.requests)
    assert any(e["name"] == "preempted" for e in events if e["ph"] == "X")


def test_random_runs_export_without_overlaps(tmp_path):
    """B91: aborts, failing steps, warm starts."""
    for seed in range(60):
        trace, _ = drive(seed, trouble=0.1 * (seed % 2))
        check(export(trace, tmp_path))


def test_a_recording_in_the_middle_of_work_exports(tmp_path):
    core = make_core(config(4, 8))
    core.add(prompt(5), params(6))
    core.step()
    trace = core.start_trace()
    core.add(prompt(5, 1), params(3))
    run_all(core)
    check(export(trace, tmp_path))


def test_a_trace_without_steps_exports(tmp_path):
    check(export(simulate([]), tmp_path))
