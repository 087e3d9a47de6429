"""A service of two seconds in which something goes wrong, for readers to find out what."""

from __future__ import annotations

import random

from nanoinfer.course.costs import QWEN3_8B_ON_H200
from nanoinfer.sampling_params import SamplingParams
from nanoinfer.sim.simulate import simulate
from nanoinfer.trace.trace import Trace

CHATS = 16
LONG_PROMPT, LONG_ARRIVAL, LONG_OUTPUT = 24_000, 0.5, 40


def latency_spike() -> Trace:
    """Sixteen chats, and a document of 24,000 tokens that arrives among them, in a pool that is a little too small."""
    rng = random.Random(4)
    lengths = [rng.randint(200, 900) for _ in range(CHATS)]
    outputs = [rng.randint(120, 260) for _ in range(CHATS)]
    arrivals = sorted(round(rng.uniform(0, 0.9), 3) for _ in range(CHATS))
    return simulate(
        [_prompt(number, length) for number, length in enumerate([*lengths, LONG_PROMPT])],
        [SamplingParams(max_tokens=tokens, ignore_eos=True) for tokens in [*outputs, LONG_OUTPUT]],
        arrivals=[*arrivals, LONG_ARRIVAL],
        cost_model=QWEN3_8B_ON_H200,
        num_kvcache_blocks=132,
        max_num_batched_tokens=8192,
        max_model_len=32_768,
    )


def _prompt(number: int, length: int) -> list[int]:
    """Token ids that share no prefix with those of another number."""
    return [number, *range(1000, 999 + length)]
