"""Traces small enough to check by hand, and busy enough to show every state."""

import random

import pytest
from kit.helpers import POLICIES

from nanoinfer import SamplingParams, simulate


@pytest.fixture(scope="session")
def self_preemption():
    """Two chunked prompts in five blocks: in step 4 sequence 1 finds no block and gives up its own."""
    return simulate(
        [list(range(8)), list(range(100, 108))],
        SamplingParams(max_tokens=5),
        kvcache_block_size=4,
        num_kvcache_blocks=5,
        max_num_batched_tokens=6,
    )


@pytest.fixture(scope="session")
def busy():
    """Twelve requests, most with one prefix, in a pool that is too small, under every policy."""
    return {policy: _busy(policy) for policy in POLICIES}


def _busy(policy):
    rng = random.Random(3)
    prefix = list(range(100, 109))
    prompts, params = [], []
    for i in range(12):
        own = [1000 + 50 * i + j for j in range(rng.randint(3, 16))]
        prompts.append(own if i % 3 == 1 else prefix + own)
        params.append(SamplingParams(max_tokens=rng.randint(6, 18)))
    arrivals = [0, 0, 1, 3, 3, 6, 10, 14, 15, 22, 24, 30]
    return simulate(
        prompts,
        params,
        arrivals=arrivals,
        kvcache_block_size=4,
        num_kvcache_blocks=24,
        max_num_batched_tokens=16,
        policy=policy,
    )
