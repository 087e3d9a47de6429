"""A service of two seconds in which something goes wrong, for readers to find out what, and the clock it runs on.

The clock is a roofline (Williams, Waterman and Patterson, 2009): how long a step takes at best.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from nanoinfer.core.plan import StepPlan
from nanoinfer.sampling_params import SamplingParams
from nanoinfer.sim.simulate import simulate
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace

CHATS = 16
LONG_PROMPT, LONG_ARRIVAL, LONG_OUTPUT = 24_000, 0.5, 40


@dataclass(frozen=True)
class Roofline:
    """One model on one device. Call it with a plan, or a step of a trace, to get seconds.

    A step must move the weights and the keys and values of every context, and must multiply; whichever takes longer
    is the floor. A weight of two bytes takes part in one multiplication and one addition for each token, so a step
    computes as many operations for a token as there are bytes of weights.

    Attributes:
        weights: bytes that every step reads, in 16-bit numbers.
        kv_per_token: bytes of the keys and values of one token of context.
        bandwidth: bytes per second between device and memory.
        flops: operations per second of large matrix products.
    """

    weights: int
    kv_per_token: int
    bandwidth: float
    flops: float

    def memory_seconds(self, plan: StepPlan | Step) -> float:
        """The least time to read what the plan needs."""
        context = sum(row.num_computed + row.num_scheduled for row in plan.rows)
        return (self.weights + context * self.kv_per_token) / self.bandwidth

    def compute_seconds(self, plan: StepPlan | Step) -> float:
        """The least time to multiply."""
        return self.weights * plan.num_batched_tokens / self.flops

    def __call__(self, plan: StepPlan | Step) -> float:
        return max(self.memory_seconds(plan), self.compute_seconds(plan))


# Sizes of Qwen3-8B in bfloat16, the bandwidth of a copy in an H200's memory, and a guess of what products reach there.
QWEN3_8B_ON_H200 = Roofline(weights=15_136_811_008, kv_per_token=147_456, bandwidth=4.3e12, flops=600e12)


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
