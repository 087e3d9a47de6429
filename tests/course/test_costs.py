"""The clock of the lessons: a roofline of one model on one GPU."""

import pytest

from nanoinfer import SamplingParams, simulate
from nanoinfer.bench.roofline import model_bytes
from nanoinfer.bench.run import SHAPES
from nanoinfer.course.costs import QWEN3_8B_ON_H200, Roofline
from nanoinfer.models.config import load_config

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
    size = model_bytes(load_config(SHAPES / "qwen3-8b"), 2)
    assert (QWEN3_8B_ON_H200.weights, QWEN3_8B_ON_H200.kv_per_token) == (size.weights, size.kv_per_token)
