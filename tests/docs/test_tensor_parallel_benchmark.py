"""The parts of `docs/benchmarks/tensor_parallel.py`, with the shipped model on two ranks of a CPU."""

import json

import pytest

from nanoinfer.engine.checkpoint import resolve_model

pytestmark = pytest.mark.slow  # each starts several pairs of processes


@pytest.fixture
def found(load, run, tmp_path, monkeypatch):
    """Runs one part of the script; what it has written of it."""
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")  # the script sets it
    script = load("benchmarks/tensor_parallel")
    monkeypatch.setattr(script, "SIZES", (2,))
    monkeypatch.setattr(script, "TURNS", 2)

    def found(part):
        model = resolve_model("tiny")
        shapes = ["--shape", model, "--large-shape", model]
        work = ["--requests", 2, "--input-len", 8, "--output-len", 4]
        assert run(script, "--only", part, "--device", "cpu", *shapes, *work, "--out", tmp_path / "found.json") == 0
        document = json.loads((tmp_path / "found.json").read_text())
        assert document["benchmark"] == "tensor_parallel"
        return document[part]

    return found


def test_two_ranks_compute_what_one_does(found):
    logits, *greedy = found("same")
    assert 0 < logits["bfloat16_noise_1"] < 0.1 * logits["logits_rms"]
    assert 0 < logits["difference_over_noise"] < 4
    assert [part["dtype"] for part in greedy] == ["bfloat16", "float32"]
    assert all(part["explained"] for part in greedy)
    assert greedy[1]["equal"] == greedy[1]["outputs"] == 8


def test_the_speed_of_every_work_and_a_profile(found):
    results = found("speed")
    assert len(results) == 2 * 3
    started, timed, profiled = results[:3]
    assert (started["devices"], started["blocks"] > 0) == (2, True)
    assert (timed["work"], timed["requests"], timed["tokens_per_second"] > 0) == ("B", 2, True)
    assert profiled["exchanges"] == 14  # two a layer, the embedding's and the logits'


def test_a_killed_rank_ends_the_engine_and_leaves_nothing(found):
    results = found("lost")
    assert [result["killed_in"] for result in results] == ["decode, graphs", "decode, eager", "prefill"]
    for result in results:
        assert "rank 1 of tensor_parallel_size=2 was ended by SIGKILL" in result["said"]
        assert (result["closed"], result["workers_left"]) == (True, 0)


def test_engines_open_and_close_one_after_the_other(found):
    results = found("cycle")
    assert [result["turn"] for result in results] == [0, 1]
    assert {result["workers_left"] for result in results} == {0}
