"""Outputs and decisions of one tree, as JSON: the half of `compare_trees.py` that runs inside that tree.

usage: python docs/benchmarks/run_scenarios.py cuda|cpu MODEL_DIR FILE.json [SCENARIO ...]

MODEL_DIR is the tiny model, which a CPU runs in every scenario. Without names, every scenario is run.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nanoinfer
from nanoinfer import LLM, SamplingParams

SHAPE = Path(nanoinfer.__file__).parent / "bench/shapes/qwen3-0.6b"
TIMES = ("timing", "clock", "arrival")  # what differs from run to run


class Sizes(NamedTuple):
    """How large the work is; the small pool holds only a fraction of it at once."""

    requests: int
    prompt: int  # most tokens of a prompt, about
    output: int  # most tokens of an output
    small_pool: dict[str, int]


GPU = Sizes(
    64,
    640,
    300,
    {"kvcache_block_size": 256, "num_kvcache_blocks": 28, "max_num_batched_tokens": 1024, "max_num_seqs": 24},
)
CPU = Sizes(
    24,
    40,
    24,
    {"kvcache_block_size": 4, "num_kvcache_blocks": 32, "max_num_batched_tokens": 48, "max_num_seqs": 12},
)
Request = tuple[list[int], SamplingParams]
Found = tuple[Any, list[dict[str, Any]]]  # the trace and the outputs


class Scenario(NamedTuple):
    """What is constructed, and what is done with it."""

    name: str
    model: str
    settings: dict[str, Any]
    run: Callable[[LLM, Sizes], Found]


def work(vocab: int, sizes: Sizes, seed: int) -> list[Request]:
    """A third of the prompts begin with one of two prefixes; half are greedy, half sampled; some may stop early."""
    rng = random.Random(seed)
    prefixes = [[rng.randrange(vocab) for _ in range(sizes.prompt * 5 // 8)] for _ in range(2)]
    requests = []
    for i in range(sizes.requests):
        body = [rng.randrange(vocab) for _ in range(rng.randint(1, sizes.prompt * 3 // 8))]
        own = [rng.randrange(vocab) for _ in range(rng.randint(0, sizes.prompt * 5 // 8))]
        prompt = (prefixes[i % 2] if rng.random() < 1 / 3 else own) + body
        sampling: dict[str, Any] = {"temperature": 0.0} if i % 2 else {"temperature": 0.8, "seed": i if i % 4 else None}
        if i % 6 == 0:
            sampling |= {"top_k": 50, "top_p": 0.9}
        if i % 3 == 0:
            sampling |= {"stop_token_ids": list(range(i % 60, vocab, 60))}
        requests.append(
            (prompt, SamplingParams(max_tokens=rng.randint(1, sizes.output), ignore_eos=i % 5 != 0, **sampling))
        )
    return requests


def batch(llm: LLM, sizes: Sizes) -> Found:
    """All requests at once."""
    prompts, params = zip(*work(llm.config.vocab_size or 0, sizes, seed=1), strict=True)
    trace: Any = llm.generate(list(prompts), list(params), record=True, use_tqdm=False)
    return trace, trace.outputs


def online(llm: LLM, sizes: Sizes) -> Found:
    """Requests arrive while others run, and some are aborted."""
    rng = random.Random(2)
    todo = work(llm.config.vocab_size or 0, sizes, seed=3)
    llm.start_trace()
    outputs: list[Any] = []
    live: set[int] = set()
    while todo or not llm.is_finished():
        for _ in range(rng.choice((0, 0, 1, 2))):
            if todo:
                live.add(llm.add_request(*todo.pop()))
        finished = llm.step()
        outputs += finished
        live -= {output["request_id"] for output in finished}
        if rng.random() < 0.03 and live:
            victim = rng.choice(sorted(live))
            live.discard(victim)
            outputs.append(aborted(llm, victim))
    return llm.stop_trace(), outputs


def aborted(llm: LLM, request: int) -> Any:
    """Overlapped, a request may have reached its length already, with its last token still to come: too late."""
    try:
        return llm.abort(request)
    except ValueError:
        return {"request_id": request, "finish_reason": "too late to abort", "token_ids": []}


def scenarios(device: str, tiny: str) -> Iterator[Scenario]:
    gpu = device == "cuda"
    sizes = GPU if gpu else CPU
    model = str(SHAPE) if gpu else tiny
    base: dict[str, Any] = {"load_format": "dummy", "dtype": "bfloat16"} if gpu else {}
    small = base | sizes.small_pool
    for overlap in (True, False):
        loop = "overlap" if overlap else "plain"
        for policy in ("prefill_first", "mixed"):
            common = small | {"overlap": overlap, "policy": policy}
            for graphs in (False, True) if gpu and policy == "prefill_first" else (gpu,):
                name = f"{loop} {policy} {'graphs' if graphs else 'eager'}"
                yield Scenario(f"small pool {name}", model, common | {"enforce_eager": not graphs}, batch)
            if policy == "prefill_first" or not gpu:
                yield Scenario(f"online, small pool, {name}", model, common | {"enforce_eager": not gpu}, online)
        yield Scenario(f"large pool {loop}", model, base | {"overlap": overlap}, batch)
        uncached = small | {"overlap": overlap, "enable_prefix_caching": False}
        yield Scenario(f"no prefix caching {loop}", model, uncached, batch)
    yield Scenario("tiny model, defaults", tiny, {}, batch)


def decisions(trace: Any) -> list[dict[str, Any]]:
    """The steps with their events, and the requests, as the trace file tells them, without times."""
    with tempfile.TemporaryDirectory() as folder:
        trace.save(Path(folder) / "trace.jsonl")
        lines = [json.loads(line) for line in (Path(folder) / "trace.jsonl").read_text().splitlines()]
    kept = [line for line in lines if line["type"] in ("step", "request")]
    return [
        {key: value for key, value in line.items() if key not in TIMES} | {"events": line.get("events", [])}
        for line in kept
    ]


def main() -> int:
    device, tiny, file, *only = sys.argv[1:]
    found = {}
    chosen = [s for s in scenarios(device, tiny) if not only or s.name in only]
    if missing := set(only) - {s.name for s in chosen}:
        names = ", ".join(repr(s.name) for s in scenarios(device, tiny))
        print(f"no scenario {sorted(missing)} on {device}; choose among {names}", file=sys.stderr)
        return 2
    for name, model, settings, run in chosen:
        with LLM(model, device=device, seed=7, **settings) as llm:
            trace, outputs = run(llm, GPU if device == "cuda" else CPU)
        found[name] = {"outputs": outputs, "steps": decisions(trace)}
    Path(file).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
