"""Record the runs that notebooks replay: `python -m nanoinfer.course.traces`.

A recording is a name and a function that makes the run anew, in seconds, on a CPU; some need a GPU and stay as they
are where there is none.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nanoinfer.course.recordings import CHECKOUT
from nanoinfer.course.spike import latency_spike
from nanoinfer.sampling_params import SamplingParams
from nanoinfer.sim.simulate import simulate
from nanoinfer.trace.trace import Trace

# Eight requests on a GPU, one ending after the other: the plain loop, with CUDA graphs, and with overlap as well.
# The weights are random, with the shape of Qwen3-0.6B: they run as fast as trained ones.
REQUESTS, FEWEST_TOKENS = 8, 12
SETTINGS: dict[str, Any] = {"max_num_seqs": REQUESTS, "max_model_len": 512, "num_kvcache_blocks": 32}
VARIANTS: dict[str, dict[str, Any]] = {
    "gpu_eager": {"enforce_eager": True, "overlap": False},
    "gpu_graphs": {"enforce_eager": False, "overlap": False},
    "gpu_overlap": {"enforce_eager": False, "overlap": True},
}


def questions() -> Trace:
    """The five questions of the demonstration, answered by the shipped model."""
    from nanoinfer import LLM, demo

    with LLM("tiny", device="cpu", **demo.SETTINGS) as llm:
        greedy = SamplingParams(temperature=0, max_tokens=48)
        trace: Trace = llm.chat(demo.conversations(), greedy, record=True, use_tqdm=False)
        return trace


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


RECORDINGS: dict[str, Callable[[], Trace]] = {
    "questions": questions,
    "latency_spike": latency_spike,
}
ON_A_GPU: dict[str, Callable[[], Trace]] = {name: partial(gpu_run, name) for name in VARIANTS}


def main(folder: Path = CHECKOUT) -> None:
    """Make every recording anew that this machine can make, and write it to `folder`."""
    import torch

    has_gpu = torch.cuda.is_available()
    if not has_gpu:
        print(f"no NVIDIA GPU here: {', '.join(ON_A_GPU)} are left as they are", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in (RECORDINGS | (ON_A_GPU if has_gpu else {})).items():
        path = folder / f"{name}.jsonl.gz"
        make().save(path)
        print(f"{path} {path.stat().st_size / 1000:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
