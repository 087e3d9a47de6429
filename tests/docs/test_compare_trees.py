"""`docs/benchmarks/compare_trees.py`: equal trees are found equal, and a planted fault is found."""

import json
import shutil
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
SCENARIO = "small pool overlap mixed eager"
FAULT = "\nBlockManager._prefix_hits = lambda self, seq: []\n"


@pytest.fixture
def script(load):
    return load("benchmarks/compare_trees")


@pytest.mark.slow  # two or three processes that import torch
@pytest.mark.parametrize("fault", ["", FAULT], ids=["the same", "no prefix hits"])
def test_outputs_of_two_trees(script, run, tmp_path, capsys, fault):
    before = tmp_path / "before"
    shutil.copytree(TREE / "nanoinfer", before / "nanoinfer", ignore=shutil.ignore_patterns("tiny", "__pycache__"))
    with (before / "nanoinfer/core/block_manager.py").open("a") as file:
        file.write(fault)
    found = run(script, "outputs", "--before", before, "--device", "cpu", "--only", SCENARIO, "--json")
    result = json.loads((tmp_path / "compare_trees.json").read_text())["outputs"][SCENARIO]
    assert (found, result["equal"], len(result["differences"]) > 0) == ((1, False, True) if fault else (0, True, False))
    assert result.get("before_equals_itself") is (True if fault else None)
    assert min(result["requests"], result["tokens"], result["steps"], result["preemptions"], result["events"]) > 0
    assert ("DIFFERENT" in capsys.readouterr().out) is bool(fault)


def test_the_first_difference_of_each_part_is_told(script):
    outputs = [{"token_ids": [1, 2], "finish_reason": "length"}]
    step = {"events": ["a"], "preempted": [3]}
    before = {"outputs": outputs, "steps": [step]}
    result = script.compare(before, {"outputs": outputs, "steps": [step, step]})
    assert [d.split(":")[0] for d in result["differences"]] == ["steps[1]"]
    assert (result["tokens"], result["steps"], result["preemptions"], result["events"]) == (2, 2, 2, 2)
    assert script.compare(before, before)["equal"]


def test_a_path_without_the_package_is_an_error(script, run, tmp_path):
    with pytest.raises(RuntimeError, match="holds no package nanoinfer"):
        run(script, "outputs", "--before", tmp_path, "--device", "cpu")


def test_speeds_are_pooled_over_the_rounds(script, run, monkeypatch, tmp_path):
    """In turns, the tree before first; a case of its own for each number of requests."""
    asked = []

    def bench(tree, options, work, extra):
        asked.append(tree)
        speeds = [10.0, 12.0, 11.0] if tree == tmp_path else [22.0, 22.0, 22.0]
        case = {"requests": 4, "engines": {"nanoinfer": {"tokens_per_second": speeds}}}
        return {"machine": {}, "versions": {}, "engine": {}, "cases": [case]}

    monkeypatch.setattr(script, "bench", bench)
    monkeypatch.setattr(script, "check", lambda tree: None)
    assert run(script, "speed", "--before", tmp_path, "--device", "cpu", "--rounds", 2, "--json") == 0
    assert asked == [tmp_path, TREE] * 2
    row = json.loads((tmp_path / "compare_trees.json").read_text())["speed"]["summary"]["B4"]
    assert (row["before"], row["now"], row["ratio"], row["ratio_by_round"]) == (11, 22, 2, [2, 2])
    assert (row["before_spread"], row["now_spread"]) == (pytest.approx(2 / 11), 0)
