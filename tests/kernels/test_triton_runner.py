"""The whole model through the Triton kernels, against plain PyTorch."""

import pytest
import torch
from kit.runs import make_runner, run_all

from nanoinfer.sampling_params import SamplingParams

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MODEL = {"head_dim": 16, "num_hidden_layers": 1}
PROMPTS = [[5, 9, 2] * 7, [7], list(range(20, 36)), list(range(1, 18))]
MIXED = [
    SamplingParams(temperature=0, max_tokens=4, ignore_eos=True),
    SamplingParams(max_tokens=4, seed=3, ignore_eos=True),
    SamplingParams(max_tokens=3, top_k=5, top_p=0.9, seed=4, ignore_eos=True),
    SamplingParams(temperature=0.5, max_tokens=4, ignore_eos=True),
]


def completions(directory, backend, policy="prefill_first", budget=64):
    runner = make_runner(
        directory,
        MODEL,
        device=DEVICE,
        dtype="float32",
        attention_backend=backend,
        kvcache_block_size=16,
        num_kvcache_blocks=8,
        max_num_batched_tokens=budget,
        max_num_seqs=4,
        policy=policy,
    )
    try:
        assert runner.loaded.backend.name == backend
        return run_all(runner, PROMPTS, MIXED)
    finally:
        runner.close()


@pytest.mark.parametrize(("policy", "budget"), [("prefill_first", 64), ("mixed", 9)])
def test_completions_are_those_of_plain_pytorch(tmp_path, policy, budget):
    """Greedy, drawn and filtered rows; whole prompts, chunks, and decodes among them."""
    assert completions(tmp_path, "triton", policy, budget) == completions(tmp_path, "torch", policy, budget)


def test_logits_are_those_of_plain_pytorch(tmp_path):
    logits = []
    for backend in ("torch", "triton"):
        runner = make_runner(
            tmp_path, MODEL, device=DEVICE, dtype="float32", attention_backend=backend, kvcache_block_size=16
        )
        run_all(runner, [PROMPTS[0]])
        logits.append(runner.loaded.last_logits.clone())
        runner.close()
    spread = logits[0].std()
    assert spread > 1
    assert (logits[0] - logits[1]).abs().max() < 1e-4 * spread


def test_decode_steps_in_bfloat16_take_our_matrix_products_and_others_the_library(tmp_path, monkeypatch):
    from nanoinfer.kernels import linear, ops
    from nanoinfer.runner import attention

    if not linear.has_shared_memory(torch.device(DEVICE)):
        pytest.skip("too little shared memory")
    shapes = []

    def spy(x, weight):
        shapes.append(tuple(out.shape) if (out := linear.linear_few_rows(x, weight)).ndim == 3 else out.shape[1])
        return out

    monkeypatch.setattr(ops, "linear_few_rows", spy)
    monkeypatch.setattr(attention, "obstacle", lambda *_: None)  # the tests' interpreter knows bfloat16
    logits, calls = [], []
    for backend in ("torch", "triton"):
        settings = {"device": DEVICE, "attention_backend": backend, "kvcache_block_size": 16, "enforce_eager": True}
        runner = make_runner(tmp_path, MODEL | {"intermediate_size": 1056}, dtype="bfloat16", **settings)
        one = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
        run_all(runner, PROMPTS[:2], one, on_plan=lambda plan: calls.append((plan.phase, len(shapes))))
        logits.append(runner.loaded.last_logits.float())
        runner.close()
    assert [phase for phase, _ in calls] == ["prefill", "decode"] * 2
    assert calls[-1][1] == 0  # none before the decode step
    assert shapes == [128, 32, 2112, (2, 2, 32), 61]  # qkv, o, gate and up, down in two parts, head
    assert (logits[0] - logits[1]).abs().max() < 0.05 * logits[0].std()
