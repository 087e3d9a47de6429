"""`docs/benchmarks/kernels.py` on small shapes: in Triton's interpreter, or on the GPU where there is one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import nanoinfer
from nanoinfer.kernels.interpreter import triton_interpreter

KERNELS = Path(nanoinfer.__file__).parent / "kernels"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CASES = {  # by file of kernels
    "activation": {"silu_mul"},
    "linear": {f"linear_one_row {matrix}" for matrix in ("qkv", "o", "gate_up", "down", "head")},
    "norm": {"rms_norm", "add_rms_norm"},
    "paged_decode": {"paged_decode", "paged_decode ragged"},
    "paged_prefill": {"paged_prefill"},
    "rotary_store": {"norm_rope_store"},
    "sampling": {"sample", "sample greedy"},
}


@pytest.fixture
def kernels(load):
    """The script, with what its `main` does first where there is no GPU."""
    if DEVICE == "cpu":
        triton_interpreter()
    return load("benchmarks/kernels")


@pytest.fixture
def setting(kernels):
    """The shipped model's shapes; the script chooses the same on a CPU."""
    from nanoinfer.engine.checkpoint import resolve_model
    from nanoinfer.models.config import load_config

    return kernels.Setting(load_config(resolve_model("tiny")), DEVICE, torch.float32, 16)


def test_every_file_of_kernels_is_measured_but_feed_tokens():
    launching = {path.stem for path in KERNELS.glob("*.py") if "**LAUNCH" in path.read_text(encoding="utf-8")}
    assert launching - {"ops"} == set(CASES)  # ops.py launches feed_tokens itself


@pytest.mark.slow
def test_it_runs_and_writes_every_case(kernels, run, tmp_path):
    sizes = ["--rows", 1, 2, "--context", 20, "--ragged", 5, 40, "--budget-ms", 1]
    assert run(kernels, *sizes, "--device", DEVICE, "--out", tmp_path / "deep" / "kernels.json") == 0
    evidence = json.loads((tmp_path / "deep" / "kernels.json").read_text())
    assert evidence["seed"] == 0
    assert evidence["machine"]["versions"]["torch"] == torch.__version__
    assert (evidence["context"], evidence["ragged"]) == (20, [5, 40])
    names = set().union(*CASES.values())
    measured = [(result["kernel"], result["rows"]) for result in evidence["results"]]
    assert len(measured) == len(set(measured))
    assert {name for name, rows in measured if rows == 1} == names
    assert {name for name, rows in measured if rows == 2} == names - CASES["linear"]
    for result in evidence["results"]:
        assert {"triton", "torch"} <= set(result["microseconds"])
        assert min(result["microseconds"].values()) > 0


def test_bytes_by_hand(kernels, setting):
    """Hidden size 256, 8 heads and 4 kv heads of 64, float32; contexts of 20, and two drawn between 5 and 40."""
    made = {case.name: case.bytes for case in kernels.cases(setting, [1, 2], 20, [5, 40])}  # those of 2 rows come last
    query, token = 8 * 64 * 4, 2 * 4 * 64 * 4  # one row's queries; one token's key and value
    assert made["rms_norm"] == (2 + 2 + 1) * 256 * 4
    assert made["linear_one_row o"] == (256 * 512 + 512 + 256) * 4
    assert made["norm_rope_store"] == 2 * (16 + (12 + 8)) * 64 * 4 + 2 * 64 * 4
    assert made["paged_decode"] == 2 * (2 * query + 20 * token)
    assert made["paged_prefill"] == 40 * 2 * query + 2 * 20 * token
    contexts, rest = divmod(made["paged_decode ragged"] - 2 * 2 * query, token)
    assert rest == 0
    assert 10 <= contexts <= 80
    assert contexts != 40


def test_ragged_contexts_come_longest_first_and_differ(kernels, setting, monkeypatch):
    seen = []
    monkeypatch.setattr(kernels, "decode_case", lambda at, name, contexts: seen.append(contexts))
    list(kernels.cases(setting, [5], 20, [5, 40]))
    even, ragged = seen
    assert even == [20] * 5
    assert ragged == sorted(ragged, reverse=True)
    assert len(set(ragged)) > 1
    assert all(5 <= length <= 40 for length in ragged)


def giving(outputs):
    """Ways that have run already."""
    return {way: lambda parts=parts: parts for way, parts in outputs.items()}


def spoilt(parts, i):
    """Outputs of which one is changed: numbers by a tenth, token ids to others."""
    wrong = parts[i] * 1.1 if parts[i].is_floating_point() else parts[i] + 1
    return (*parts[:i], wrong, *parts[i + 1 :])


def test_a_wrong_output_of_any_case_ends_the_run(kernels, setting):
    for case in kernels.cases(setting, [2], 20, [5, 40]):
        outputs = {way: kernels.outputs_of(run) for way, run in case.runs.items()}
        kernels.check(replace(case, runs=giving(outputs)))
        for way, parts in outputs.items():
            for i in range(len(parts)):
                with pytest.raises(RuntimeError, match=f"{case.name}, 2 rows: triton and .* differ"):
                    kernels.check(replace(case, runs=giving(outputs | {way: spoilt(parts, i)})))


def test_nan_is_a_difference(kernels):
    numbers = torch.ones(4)
    case = kernels.Case("made up", 1, 16, {"triton": lambda: numbers, "torch": lambda: numbers * torch.nan})
    with pytest.raises(RuntimeError, match="differ by nan"):
        kernels.check(case)


def test_the_cache_lies_as_the_backends_of_a_gpu_want_it(kernels, setting):
    cache = setting.cache(blocks=3)
    assert cache.blocks.shape == (2, 3, 16, 4, 64)
    assert cache.key.data_ptr() == cache.blocks[0].data_ptr()
    assert cache.value.data_ptr() == cache.blocks[1].data_ptr()
    assert cache.key.shape == cache.value.shape == (48, 4, 64)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_it_needs(kernels, run, capsys):
    assert run(kernels) == 1
    assert "needs an NVIDIA GPU" in capsys.readouterr().err
