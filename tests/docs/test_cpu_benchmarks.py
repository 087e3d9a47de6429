"""The benchmarks of `docs/benchmarks/` that need no GPU and no browser, with small numbers."""

import json
from unittest.mock import Mock

import pytest
from kit.helpers import config, params, prompt

from nanoinfer.core.trace_builder import StepTimes
from nanoinfer.trace.recorder import Recorder


def evidence_of(folder, name):
    evidence = json.loads((folder / f"{name}.json").read_text())
    assert evidence["benchmark"] == name
    assert set(evidence) > {"seed", "machine"}
    return evidence


# ---- recording_cost.py --------------------------------------------------------------------


@pytest.fixture
def recording_cost(load, monkeypatch):
    module = load("benchmarks/recording_cost")
    monkeypatch.setattr(module, "SEQUENCES", 4)
    monkeypatch.setattr(module, "STEPS", 8)
    return module


def test_recording_cost_reports_three_versions(recording_cost, run, tmp_path):
    assert run(recording_cost, "--rounds", 2) == 0
    evidence = evidence_of(tmp_path, "recording_cost")
    assert (evidence["sequences"], evidence["steps_per_round"], evidence["rounds"]) == (4, 8, 2)
    assert list(evidence["microseconds_per_step"]) == ["deleted", "off", "on"]
    assert min(evidence["microseconds_per_step"].values()) > 0
    assert list(evidence["ratio_to_deleted"]) == ["off", "on"]
    assert set(evidence["trace_bytes_per_step"]) == {"jsonl", "jsonl.gz"}


def test_only_one_of_the_versions_is_cut_and_only_one_records(recording_cost, monkeypatch):
    made = []
    original = recording_cost.busy_core
    monkeypatch.setattr(recording_cost, "busy_core", lambda deleted: made.append(original(deleted)) or made[-1])
    times = recording_cost.measure(rounds=1)
    assert {name: len(values) for name, values in times.items()} == {"deleted": 4, "off": 4, "on": 4}
    deleted, off, on = made
    assert type(deleted) is not type(off) is type(on)
    assert (deleted.trace, off.trace) == (None, None)
    assert len(on.trace.steps) == 4 + 8
    assert {len(core.scheduler.running) for core in made} == {4}


class LoudTimes(StepTimes):
    """Counts what is timed: steps and their parts."""

    timed = 0

    def __post_init__(self):
        LoudTimes.timed += 1
        super().__post_init__()

    def lap(self, name, now):
        LoudTimes.timed += 1
        super().lap(name, now)


def rest_of(core):
    """Step until nothing is left to do; what finished."""
    finished = [seq for _ in range(60) for seq in core.step()]
    assert core.is_finished()
    return finished


def watched_run(recording_cost, deleted, overlap, monkeypatch):
    """What a run tells: names of the recorder's events and of the recording's calls, and how many times were taken;
    with the outputs. Requests share a prefix, find it again, are preempted, aborted and, overlapped, stopped late."""
    core = recording_cost.make_core(config(2, 9, 16, 3, overlap=overlap), deleted)
    recorder, recording = Mock(spec=Recorder), Mock(next_index=0)
    core.scheduler.recorder = core.scheduler.block_manager.recorder = recorder
    core._builder = recording
    monkeypatch.setitem(core._step.__func__.__globals__, "StepTimes", LoudTimes)
    LoudTimes.timed = 0
    core.add(prompt(5), params(8))
    finished = core.step()
    core.add(prompt(5), params(8))
    core.add(prompt(4, tag=1), params(1, stop_token_ids=(7,)))  # the token of every row is 7
    core.abort(core.add(prompt(3, tag=2), params(5)))
    finished += rest_of(core)
    core.add(prompt(5), params(2))
    finished += rest_of(core)
    events, calls = ({call[0] for call in mock.mock_calls} for mock in (recorder, recording))
    return (events, calls, LoudTimes.timed), [(s.seq_id, s.completion_token_ids, s.finish_reason) for s in finished]


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
def test_the_cut_version_tells_nothing_and_does_the_same(recording_cost, monkeypatch, overlap):
    whole, outputs = watched_run(recording_cost, False, overlap, monkeypatch)
    events, calls, timed = whole
    assert events == {name for name in vars(Recorder) if not name.startswith("_")}, "else some call was not tried"
    assert calls == {"request", "begin_next", "add_step", "notify"}
    assert timed > 0
    cut, cut_outputs = watched_run(recording_cost, True, overlap, monkeypatch)
    assert cut == (set(), set(), 0)
    assert cut_outputs == outputs


# ---- scaling.py ---------------------------------------------------------------------------


@pytest.fixture
def scaling(load, monkeypatch):
    module = load("benchmarks/scaling")
    for name, value in {"SIZES": (300, 600), "BATCH": 4, "STEPS": 3}.items():
        monkeypatch.setattr(module, name, value)
    return module


def test_scaling_reports_every_kind_and_size_and_draws_them(scaling, run, tmp_path):
    assert run(scaling) == 0
    evidence = evidence_of(tmp_path, "scaling")
    assert evidence["sizes"] == [300, 600]
    for axis in ("pool", "queue"):
        assert {kind: len(values) for kind, values in evidence[axis].items()} == dict.fromkeys(scaling.KINDS, 2)
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("kind", "running", "waiting", "hits"),
    [("steady decode", 4, 1 + 50, False), ("admit and finish", 0, 50, False), ("prefix hits", 0, 50, True)],
)
def test_scaling_times_the_steps_it_names(scaling, monkeypatch, kind, running, waiting, hits):
    made = []
    original = scaling.scheduler_with

    def scheduler_with(num_blocks):
        made.append(original(num_blocks))
        made[-1].block_manager.recorder = Mock(spec=Recorder)
        return made[-1]

    monkeypatch.setattr(scaling, "scheduler_with", scheduler_with)
    assert scaling.KINDS[kind](300, 50) > 0
    (scheduler,) = made
    assert (len(scheduler.running), len(scheduler.waiting)) == (running, waiting)
    assert bool(scheduler.block_manager.recorder.reuse.mock_calls) == hits


# ---- cpu_throughput.py --------------------------------------------------------------------


@pytest.fixture
def cpu_throughput(load, monkeypatch):
    """Both engines run the same few and short requests."""
    module = load("benchmarks/cpu_throughput")
    assert [len(part) for part in module.workload(4096)] == [32, 32]
    monkeypatch.setattr(module, "REQUESTS", 2)
    monkeypatch.setattr(module, "workload", lambda vocabulary: ([[5, 6, 7], [8] * 20], [4, 9]))
    return module


def test_cpu_throughput_compares_equal_outputs(cpu_throughput, run, tmp_path):
    assert run(cpu_throughput, "--rounds", 2, "--threads", 1) == 0
    evidence = evidence_of(tmp_path, "cpu_throughput_1_threads")
    assert (evidence["prompt_tokens"], evidence["output_tokens"], evidence["outputs"]) == (23, 13, "all 2 equal")
    assert {name: len(speeds) for name, speeds in evidence["tokens_per_second"].items()} == {
        "nanoinfer": 2,
        "transformers": 2,
    }
    assert evidence["ratio"]["min"] <= evidence["ratio"]["median"] <= evidence["ratio"]["max"]


def test_cpu_throughput_reports_nothing_where_outputs_differ(cpu_throughput, run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cpu_throughput, "run_nanoinfer", lambda llm, prompts, wanted: [[0] * 4, [0] * 9])
    assert run(cpu_throughput, "--threads", 1) == 1
    assert "2 of 2 outputs differ" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# ---- class_run.py -------------------------------------------------------------------------


@pytest.mark.slow
def test_class_run_grades_everybody(load, run, monkeypatch, tmp_path):
    """The solution, the starter, a wrong submission and one that exits."""
    module = load("benchmarks/class_run")
    monkeypatch.setattr(module, "EVIDENCE", tmp_path)
    monkeypatch.setattr(module, "EVERY", 4)
    monkeypatch.setattr(module, "HOSTILE", {"exits": "import sys\n\nsys.exit(0)\n"})
    wrong = module.write_mutants
    monkeypatch.setattr(module, "write_mutants", lambda *arguments: wrong(*arguments)[:1])
    assert run(module, "--students", 4) == 0
    evidence = evidence_of(tmp_path, "class_run")
    assert (evidence["students"], evidence["jobs"]) == (4, 2)
    assert sum(evidence["submissions_by_percent"].values()) == 4
    assert (evidence["submissions_by_percent"]["0"], evidence["submissions_by_percent"]["100"]) == (2, 1)
    rows = (tmp_path / "class_run.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows[2:]] == ["001 solution", "002 starter", "003 exits"]
