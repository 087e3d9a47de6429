"""The incident that a lesson investigates has the causes that the lesson finds; its clock is a roofline."""

import pytest

from nanoinfer import SamplingParams, simulate
from nanoinfer.course.spike import LONG_PROMPT, QWEN3_8B_ON_H200, Roofline, latency_spike


def test_a_long_prompt_stalls_everybody_who_decodes():
    trace = latency_spike()
    (culprit,) = [r.seq_id for r in trace.requests.values() if len(r.prompt_token_ids) == LONG_PROMPT]
    chunks = [step for step in trace.steps for row in step.rows if row.seq_id == culprit and row.chunk]
    assert [step.index for step in chunks] == list(range(chunks[0].index, chunks[0].index + 3))
    assert {step.decode_stop.reason for step in chunks} == {"PHASE_EXCLUSIVE"}
    gaps = trace.metrics()["inter_token_latency"]
    assert gaps["p99"] < 0.03 < 0.6 < gaps["max"]


def test_the_preemption_comes_later_and_is_not_the_cause():
    trace = latency_spike()
    (index,) = [step.index for step in trace.steps if step.preempted]
    last_chunk = max(step.index for step in trace.steps for row in step.rows if row.chunk and row.chunk[1] == 3)
    assert index > last_chunk
    assert trace.metrics()["recomputed_tokens"] < 300


def again(trace, **change):
    """The same requests under other settings."""
    asked = list(trace.requests.values())
    settings = {"num_kvcache_blocks": 132, "max_num_batched_tokens": 8192, "max_model_len": 32_768} | change
    return simulate(
        [r.prompt_token_ids for r in asked],
        [SamplingParams(**r.sampling_params) for r in asked],
        arrivals=[r.arrival for r in asked],
        cost_model=QWEN3_8B_ON_H200,
        **settings,
    )


def test_the_exercises_have_the_answers_of_their_hints():
    trace = latency_spike()
    roomy = again(trace, num_kvcache_blocks=200).metrics()["requests"][16]
    assert trace.steps[105].stop.operands == {"needed": 3, "free": 2}
    assert round(1000 * roomy["ttft"]) == 375
    small = again(trace, policy="mixed", max_num_batched_tokens=512)
    assert round(1000 * small.metrics()["inter_token_latency"]["max"]) == 100
    assert [p.victim for step in small.steps for p in step.preempted] == [15]
    roomy = again(trace, policy="mixed", max_num_batched_tokens=512, num_kvcache_blocks=200)
    assert roomy.metrics()["inter_token_latency"]["max"] < 0.014


# ---- its clock --------------------------------------------------------------------------------

ROOFLINE = Roofline(weights=1000, kv_per_token=10, bandwidth=100, flops=5000)


def steps(**more):
    """Prefill of 4 and 60 tokens, then a decode with contexts of 5 and 61."""
    prompts = [[1, 2, 3, 4], list(range(100, 160))]
    return simulate(prompts, SamplingParams(max_tokens=2, ignore_eos=True), **more).steps


def test_the_longer_of_reading_and_computing_decides():
    prefill, decode = steps()
    assert ROOFLINE.memory_seconds(prefill) == (1000 + 64 * 10) / 100
    assert ROOFLINE.compute_seconds(prefill) == 64 * 1000 / 5000
    assert ROOFLINE(prefill) == pytest.approx(16.4)
    assert ROOFLINE(decode) == (1000 + 66 * 10) / 100
    assert Roofline(1000, 10, 100, 1000)(prefill) == 64


def test_it_is_the_clock_of_a_simulation():
    plain = steps()
    assert [step.timing["duration"] for step in steps(cost_model=ROOFLINE)] == pytest.approx([*map(ROOFLINE, plain)])


def test_the_sizes_are_those_of_the_model():
    from nanoinfer.bench.roofline import model_bytes
    from nanoinfer.bench.run import SHAPES
    from nanoinfer.models.config import load_config

    size = model_bytes(load_config(SHAPES / "qwen3-8b"), 2)
    assert (QWEN3_8B_ON_H200.weights, QWEN3_8B_ON_H200.kv_per_token) == (size.weights, size.kv_per_token)
