"""The engine on CUDA: the same tokens by every road, the reference's logits, and memory given back."""

import gc
from pathlib import Path

import pytest
import torch
from kit.helpers import POLICIES
from kit.margins import margins_where_they_part
from transformers import Qwen3Config, Qwen3ForCausalLM

from nanoinfer import LLM, SamplingParams
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.core.sequence import Sequence
from nanoinfer.reasons import Stop, StopReason
from nanoinfer.runner.attention import BACKENDS, obstacle

pytestmark = pytest.mark.gpu

STOP = Stop(StopReason.QUEUE_EMPTY)
GPU_BACKENDS = [name for name in BACKENDS if name != "torch"]
POOL = {"device": "cuda", "num_kvcache_blocks": 64, "max_num_seqs": 16, "max_model_len": 1024}
PROMPTS = [list(range(5 + i, 40 + 37 * i)) for i in range(12)]
GREEDY = [SamplingParams(temperature=0, max_tokens=30 + i, ignore_eos=True) for i in range(12)]
DRAWN = [SamplingParams(temperature=0.8, max_tokens=25 + i, seed=i, ignore_eos=True) for i in range(12)]


def needs(backend, dtype=torch.bfloat16):
    reason = obstacle(backend, torch.device("cuda"), dtype, 256)
    if reason:
        pytest.skip(reason)


def completions(params, **settings):
    with LLM("tiny", **(POOL | settings)) as llm:
        return [output["token_ids"] for output in llm.generate(PROMPTS, params, use_tqdm=False)]


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_float32_gives_the_tokens_of_the_cpu(backend, params):
    needs(backend, torch.float32)
    cpu = completions(params, device="cpu")
    assert completions(params, attention_backend=backend, dtype="float32") == cpu


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_graphs_overlap_and_recording_change_no_token(backend):
    needs(backend)
    mixed = [*GREEDY[:6], *DRAWN[6:9], *(SamplingParams(max_tokens=20, top_k=9, top_p=0.8, seed=i) for i in range(3))]
    plain = completions(mixed, attention_backend=backend, enforce_eager=True, overlap=False)
    for settings in ({}, {"overlap": False}, {"enforce_eager": True}):
        assert completions(mixed, attention_backend=backend, **settings) == plain


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_parts_from_float32_only_at_near_ties(backend):
    """Every backend, against the CPU's tokens: where they differ, the two logits were within bfloat16's rounding."""
    needs(backend)
    exact = completions(GREEDY, device="cpu")
    ours = completions(GREEDY, attention_backend=backend, dtype="bfloat16")
    with LLM("tiny", **(POOL | {"device": "cpu"})) as reference:
        margins = margins_where_they_part(reference, PROMPTS, exact, ours)
    assert max(margins, default=0) < 0.15
    assert len(margins) < len(PROMPTS), "near ties are common here, but not everywhere"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_chunks_preemption_and_prefix_hits_change_no_token_in_float32(backend, policy):
    needs(backend, torch.float32)
    settings = {"attention_backend": backend, "dtype": "float32"}
    tight = {"kvcache_block_size": 16, "num_kvcache_blocks": 60, "max_num_batched_tokens": 64, "policy": policy}
    assert completions(DRAWN, **settings, **tight) == completions(DRAWN, **settings)


# ---- logits -----------------------------------------------------------------------------------

SHAPES = {
    "group of 2": {},
    "group of 1": {"num_key_value_heads": 4},
    "group of 4, untied": {"num_key_value_heads": 1, "tie_word_embeddings": False},
    "group of 8, bias": {"num_attention_heads": 8, "num_key_value_heads": 1, "attention_bias": True},
    "head_dim 128": {"head_dim": 128},
}


def save(directory: Path, **changes) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    shape = {
        "vocab_size": 301,
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
        "eos_token_id": 0,
    }
    model = Qwen3ForCausalLM(Qwen3Config(**(shape | changes))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.2)
    model.save_pretrained(directory)
    return model.cuda()


def our_logits(llm: LLM, tokens: list[int]) -> torch.Tensor:
    """Logits after each of the last tokens: a prefill of all but four, then four decode steps through graphs."""
    runner, logits = llm.runner, []
    seq = Sequence(0, tokens[:-4], SamplingParams(temperature=0), llm.config.kvcache_block_size)
    seq.block_table = list(range(-(-len(tokens) // llm.config.kvcache_block_size)))
    for computed, scheduled in [(0, len(seq)), *((n, 1) for n in range(len(tokens) - 4, len(tokens)))]:
        if computed:
            seq.append_token(tokens[computed])
        seq.num_computed_tokens, seq.num_scheduled_tokens = computed, scheduled
        row = Row(seq, (1, 1) if not computed else None)
        runner.run(StepPlan("decode" if computed else "prefill", [row], STOP, STOP))
        logits.append(runner.loaded.last_logits[0].float().clone())
    return torch.stack(logits)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("backend", [*GPU_BACKENDS, "torch"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_are_those_of_transformers(tmp_path, backend, dtype, shape):
    needs(backend, getattr(torch, dtype))
    reference = save(tmp_path, **SHAPES[shape])
    tokens = [(7 * i * i + 3) % 300 + 1 for i in range(330)]
    with LLM(tmp_path, **POOL, attention_backend=backend, dtype=dtype) as llm:
        ours = our_logits(llm, tokens)
    with torch.inference_mode():
        exact = reference.double()(torch.tensor([tokens]).cuda()).logits[0, -5:].float()
        theirs = reference.to(getattr(torch, dtype))(torch.tensor([tokens]).cuda()).logits[0, -5:].float()
    error, noise = ((logits - exact).norm() / exact.norm() for logits in (ours, theirs))
    assert error < (1e-4 if dtype == "float32" else 1.5 * noise + 1e-3)


# ---- memory -----------------------------------------------------------------------------------


def test_ten_engines_leave_memory_where_it_was():
    def use():
        with LLM("tiny", **POOL) as llm:
            llm.generate([[1, 2, 3]], SamplingParams(max_tokens=3), use_tqdm=False)
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]

    first = use()  # libraries take their workspaces once
    for _ in range(10):
        allocated, free = use()
        assert allocated == first[0]
        assert free >= first[1] - (8 << 20)


def test_two_live_engines_do_not_disturb_each_other():
    alone = completions(GREEDY)
    with LLM("tiny", **POOL) as one, LLM("tiny", **POOL, attention_backend="triton", dtype="float32") as two:
        for prompt, params in zip(PROMPTS, GREEDY, strict=True):
            one.add_request(prompt, params)
            two.add_request(prompt, params)
        finished = {}
        while not (one.is_finished() and two.is_finished()):
            finished |= {output["request_id"]: output["token_ids"] for output in one.step()}
            two.step()
        assert [finished[i] for i in range(12)] == alone


def test_the_pool_is_sized_from_the_memory_that_is_free():
    with LLM("tiny", device="cuda", gpu_memory_utilization=0.05, max_model_len=2048, max_num_seqs=512) as llm:
        assert 0 < llm.config.num_kvcache_blocks <= 512 * 8
    with pytest.raises(ValueError, match="no room for the KV cache"):
        LLM("tiny", device="cuda", gpu_memory_utilization=1e-5)


def test_a_recorded_run_tells_gpu_time_and_graph_size():
    with LLM("tiny", **POOL) as llm:
        trace = llm.generate(PROMPTS, GREEDY, record=True, use_tqdm=False)
    for step in trace.steps:
        assert 0 < step.timing["gpu"] < 1
        assert (step.graph_size is None) == (step.phase != "decode")
        if step.graph_size is not None:
            assert len(step.columns.seq_id) <= step.graph_size <= 16
