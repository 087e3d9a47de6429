"""Eight requests on a GPU, one ending after the other: the plain loop, with CUDA graphs, and with overlap as well.

The weights are random, with the shape of Qwen3-0.6B: they run as fast as trained ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from nanoinfer.sampling_params import SamplingParams
from nanoinfer.sim.simulate import simulate
from nanoinfer.trace.trace import Trace

REQUESTS, FEWEST_TOKENS = 8, 12
SETTINGS: dict[str, Any] = {"max_num_seqs": REQUESTS, "max_model_len": 512, "num_kvcache_blocks": 32}
VARIANTS: dict[str, dict[str, Any]] = {
    "gpu_eager": {"enforce_eager": True, "overlap": False},
    "gpu_graphs": {"enforce_eager": False, "overlap": False},
    "gpu_overlap": {"enforce_eager": False, "overlap": True},
}


def gpu_run(variant: str) -> Trace:
    """Record a run of VARIANTS on the GPU here, by the second of two engines: the first's steps compile kernels."""
    from nanoinfer import LLM
    from nanoinfer.bench.run import SHAPES

    settings = SETTINGS | VARIANTS[variant]
    for _ in range(2):
        with LLM(SHAPES / "qwen3-0.6b", load_format="dummy", dtype="bfloat16", device="cuda", **settings) as llm:
            trace: Trace = llm.generate(_prompts(), _params(), record=True, use_tqdm=False)
    trace.header.config["model"] = "qwen3-0.6b"  # wherever this machine keeps its shape
    return trace


def simulated_run(variant: str, token_fn: Callable[[list[int]], int]) -> Trace:
    """The same requests and settings without a model: the decisions must be those of the GPU run."""
    return simulate(_prompts(), _params(), token_fn=token_fn, **SETTINGS, **VARIANTS[variant])


def _prompts() -> list[list[int]]:
    """40 to 200 tokens each; the first is the request's number, so no two begin alike."""
    rng = random.Random(0)
    return [[i, *(rng.randrange(10_000) for _ in range(rng.randint(40, 200)))] for i in range(REQUESTS)]


def _params() -> list[SamplingParams]:
    """Request i wants 12 * (i + 1) tokens."""
    return [SamplingParams(max_tokens=FEWEST_TOKENS * (i + 1), ignore_eos=True) for i in range(REQUESTS)]
