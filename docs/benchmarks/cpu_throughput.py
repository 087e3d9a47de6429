"""Tokens per second of the shipped model on the CPU, against `transformers`' own `generate`.

The work: 32 prompts of 8 to 512 tokens, `max_tokens` uniform in 16 to 256, greedy, ignoring the end token, float32.
transformers gets them as one left-padded batch and runs until the longest is done; nanoinfer gets them as requests.
Both are paid only for the tokens that were asked for. The two take turns in the same process with the same threads;
the quoted ratio is the median over the rounds. Both must produce the same tokens, or nothing is reported.

usage: python docs/benchmarks/cpu_throughput.py [--rounds N] [--threads N]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from common import save_evidence
from tqdm import tqdm
from transformers import AutoModelForCausalLM

from nanoinfer import LLM, SamplingParams
from nanoinfer.engine.checkpoint import resolve_model

SEED, REQUESTS = 0, 32


def workload(vocabulary: int) -> tuple[list[list[int]], list[int]]:
    """Prompts and the number of tokens each wants."""
    rng = random.Random(SEED)
    prompts = [[rng.randrange(vocabulary) for _ in range(rng.randint(8, 512))] for _ in range(REQUESTS)]
    return prompts, [rng.randint(16, 256) for _ in range(REQUESTS)]


def run_transformers(model: Any, prompts: list[list[int]], wanted: list[int]) -> list[list[int]]:
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    options = {"do_sample": False, "min_new_tokens": max(wanted), "max_new_tokens": max(wanted), "pad_token_id": 0}
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=mask, eos_token_id=None, **options)
    return [row[:n] for row, n in zip(out[:, longest:].tolist(), wanted, strict=True)]


def run_nanoinfer(llm: LLM, prompts: list[list[int]], wanted: list[int]) -> list[list[int]]:
    llm.reset_prefix_cache()
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in wanted]
    return [output["token_ids"] for output in llm.generate(prompts, params, use_tqdm=False)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch threads for both")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    llm = LLM("tiny", dtype="float32")
    prompts, wanted = workload(llm.config.vocab_size or 0)
    model: Any = AutoModelForCausalLM.from_pretrained(resolve_model("tiny"), dtype=torch.float32)
    model.eval()
    runs: dict[str, Callable[[], list[list[int]]]] = {
        "nanoinfer": lambda: run_nanoinfer(llm, prompts, wanted),
        "transformers": lambda: run_transformers(model, prompts, wanted),
    }
    differing = sum(a != b for a, b in zip(runs["nanoinfer"](), runs["transformers"](), strict=True))  # warms up too
    if differing:
        print(f"{differing} of {REQUESTS} outputs differ; comparing speed would mean nothing", file=sys.stderr)
        return 1
    speed: dict[str, list[float]] = {name: [] for name in runs}
    for _ in tqdm(range(arguments.rounds), desc="rounds", disable=None):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            speed[name].append(sum(wanted) / (time.perf_counter() - start))
    ratios = [ours / theirs for ours, theirs in zip(speed["nanoinfer"], speed["transformers"], strict=True)]
    results = {
        "requests": REQUESTS,
        "prompt_tokens": sum(map(len, prompts)),
        "output_tokens": sum(wanted),
        "threads": arguments.threads,
        "outputs": f"all {REQUESTS} equal",
        "tokens_per_second": {name: [round(v, 1) for v in values] for name, values in speed.items()},
        "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
    }
    for name, values in speed.items():
        print(f"{name:<13} {statistics.median(values):8.1f} output tokens per second")
    print(f"nanoinfer / transformers {results['ratio']}")
    print(f"evidence: {save_evidence(f'cpu_throughput_{arguments.threads}_threads', results, SEED)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
