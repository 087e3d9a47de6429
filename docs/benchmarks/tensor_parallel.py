"""Does a model on two GPUs compute what it does on one, how fast, and what is left when a rank or an engine ends?

Four parts, all with random weights:

same    Logits of one device and of two, in the checkpoint's bfloat16, against one device in float32: the difference
        between the two is measured in units of bfloat16's own error. Greedy outputs must be equal up to the first
        place where the best two tokens of one device lie closer together than the two ways to compute differ.
speed   Output tokens per second of works A and B, GPU memory, and the share of kernel time that a decode step spends
        between GPUs, at 1 and 2 devices, for two shapes.
lost    A worker is killed in the middle of the work: seconds until the error, and what is left.
cycle   Ten engines are opened and closed: processes and memory after each.

What does not begin before --limit-s is left out and says so; 100 s after that everything is ended, with the place
where it stood. Results are written after every measurement.

usage: python docs/benchmarks/tensor_parallel.py [--only same speed lost cycle] [--limit-s 420] [--out PATH]
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["NCCL_NVLS_ENABLE"] = "0"  # NVLink multicast is no part of what is measured

import torch
from common import machine
from safetensors.torch import save_file
from torch import Tensor

import nanoinfer.bench
from nanoinfer import LLM, SamplingParams
from nanoinfer.bench.engines import generate_with, release_memory
from nanoinfer.bench.measure import Work, time_runs, work_a, works_b
from nanoinfer.bench.profiler import profile_decode
from nanoinfer.models.config import load_config

SEED, TEMPERATURE, GIB = 0, 0.6, 1 << 30
SHAPES = Path(nanoinfer.bench.__file__).parent / "shapes"
SIZES, TURNS = (1, 2), 10
Part = Callable[[argparse.Namespace, "Results"], None]


class Results:
    """What was found so far: printed, and written after each measurement."""

    def __init__(self, out: Path | None, limit: float) -> None:
        self.out, self.until = out, time.monotonic() + limit
        self.found: dict[str, list[dict[str, Any]]] = {}

    def add(self, part: str, **result: Any) -> None:
        self.found.setdefault(part, []).append(result)
        print(f"{part:<6} " + "  ".join(f"{name}={shown(value)}" for name, value in result.items()), flush=True)
        if self.out:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            document = {"benchmark": "tensor_parallel", "seed": SEED, "machine": machine(), "gpus": gpus()}
            self.out.write_text(json.dumps(document | self.found, indent=1) + "\n")

    def out_of_time(self, part: str, what: str) -> bool:
        late = time.monotonic() > self.until
        if late:
            self.add(part, skipped=what, reason="out of time")
        return late


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- the machine --------------------------------------------------------------------------


def gpus() -> list[str]:
    return (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )


def gib_in_use() -> list[float]:
    """Of every GPU, by all processes."""
    pairs = [torch.cuda.mem_get_info(i) for i in range(len(gpus()))]
    return [round((total - free) / GIB, 3) for free, total in pairs]


def workers() -> int:
    """Worker processes of this one that are alive."""
    listed = subprocess.run(["ps", "-eo", "ppid,stat,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    return sum(row[0] == str(os.getpid()) and row[1][0] != "Z" and "parallel.worker" in row[2] for row in rows)


@contextmanager
def engine(arguments: argparse.Namespace, model: Path, size: int, **settings: Any) -> Iterator[LLM]:
    """An engine on `size` devices, closed at the end."""
    llm = LLM(model, tensor_parallel_size=size, device=arguments.device, seed=SEED, **settings)
    try:
        yield llm
    finally:
        llm.close()
        del llm
        release_memory()


def model_dir(name: str) -> Path:
    return SHAPES / name if (SHAPES / name).exists() else Path(name)


# ---- same ---------------------------------------------------------------------------------


def same(arguments: argparse.Namespace, results: Results) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = save_random(arguments, Path(folder))
        prompts = made_prompts(model, 8, 64)
        exact = logits(arguments, model, prompts, 1, dtype="float32")
        one = logits(arguments, model, prompts, 1, dtype="bfloat16")
        two = logits(arguments, model, prompts, 2, dtype="bfloat16")
        noise, difference = rms(one - exact), rms(two - one)
        results.add(
            "same",
            logits_rms=rms(exact),
            bfloat16_noise_1=noise,
            bfloat16_noise_2=rms(two - exact),
            difference=difference,
            difference_over_noise=difference / noise,
            largest_difference=float((two - one).abs().max()),
        )
        for dtype, allowed in (("bfloat16", 2 * float((two - one).abs().max())), ("float32", 1e-3)):
            if not results.out_of_time("same", f"greedy {dtype}"):
                results.add("same", dtype=dtype, **compare_greedy(arguments, model, prompts, dtype, allowed))


def save_random(arguments: argparse.Namespace, folder: Path) -> Path:
    """A checkpoint of random bfloat16 weights: the same numbers for every dtype it is loaded as."""
    shutil.copy(model_dir(arguments.shape) / "config.json", folder)
    with engine(arguments, folder, 1, load_format="dummy", dtype="bfloat16", **small()) as llm:
        assert llm.runner
        tensors = {name: p.detach().cpu().clone() for name, p in llm.runner.loaded.model.named_parameters()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def made_prompts(model: Path, count: int, length: int) -> list[list[int]]:
    (work,) = works_b(SEED, [count], length, 1)
    return work.shifted(0, load_config(model).vocab_size)


def small() -> dict[str, Any]:
    """Settings of an engine that starts soon."""
    return {"max_num_seqs": 16, "max_model_len": 1024, "num_kvcache_blocks": 512, "max_num_batched_tokens": 4096}


def logits(arguments: argparse.Namespace, model: Path, prompts: list[list[int]], size: int, dtype: str) -> Tensor:
    """[prompts, vocab_size], of each prompt's last token."""
    with engine(arguments, model, size, dtype=dtype, **small()) as llm:
        requests = [llm.add_request(ids, SamplingParams(max_tokens=4, ignore_eos=True)) for ids in prompts]
        llm.step()
        assert llm.runner
        assert llm.runner.loaded.last_logits is not None
        found = llm.runner.loaded.last_logits.float().cpu().clone()
        for request in requests:
            llm.abort(request)
    return found


def rms(x: Tensor) -> float:
    return float(x.double().square().mean().sqrt())


def compare_greedy(
    arguments: argparse.Namespace, model: Path, prompts: list[list[int]], dtype: str, allowed: float
) -> dict[str, Any]:
    """Greedy outputs on one and two devices, and how near the best two tokens lay where they first part."""
    params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    with engine(arguments, model, 2, dtype=dtype, **small()) as llm:
        two = [output["token_ids"] for output in llm.generate(prompts, params, use_tqdm=False)]
    with engine(arguments, model, 1, dtype=dtype, **small()) as llm:
        one = [output["token_ids"] for output in llm.generate(prompts, params, use_tqdm=False)]
        margins = []
        for prompt, a, b in zip(prompts, one, two, strict=True):
            place = next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)
            if place is not None:
                margins.append(margin(llm, prompt + a[:place]))
    return {
        "outputs": len(prompts),
        "equal": len(prompts) - len(margins),
        "margins_where_they_part": [round(m, 6) for m in margins],
        "allowed": allowed,
        "explained": all(m <= allowed for m in margins),
    }


def margin(llm: LLM, token_ids: list[int]) -> float:
    """Difference of the logits of the two most likely next tokens."""
    request = llm.add_request(token_ids, SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
    llm.step()
    first, second = llm.top_candidates(request, 2)
    llm.abort(request)
    return float(torch.tensor(first["probability"] / second["probability"]).log())


# ---- speed --------------------------------------------------------------------------------


def speed(arguments: argparse.Namespace, results: Results) -> None:
    for shape in (arguments.shape, arguments.large_shape):
        for size in SIZES:
            if not results.out_of_time("speed", f"{shape} on {size}"):
                speed_of(arguments, results, shape, size)


def speed_of(arguments: argparse.Namespace, results: Results, shape: str, size: int) -> None:
    began = time.perf_counter()
    with engine(arguments, model_dir(shape), size, load_format="dummy") as llm:
        assert llm.runner
        weights = sum(p.numel() * p.element_size() for p in llm.runner.loaded.model.parameters())
        results.add(
            "speed",
            shape=shape,
            devices=size,
            start_s=time.perf_counter() - began,
            weights_gib=weights / GIB,
            blocks=llm.config.num_kvcache_blocks,
            gib_in_use=gib_in_use(),
        )
        for work in works(arguments):
            if results.out_of_time("speed", f"work {work.name} of {shape} on {size}"):
                return
            engines = {"": generate_with(llm, TEMPERATURE, record=False)}
            (runs,) = time_runs(engines, work, llm.config.vocab_size or 0, arguments.repeat, lambda: None).values()
            results.add("speed", shape=shape, devices=size, **name_of(work), tokens_per_second=runs.speed)
        results.add("speed", shape=shape, devices=size, **between_gpus(llm, works(arguments)[-1]))


def works(arguments: argparse.Namespace) -> list[Work]:
    made = works_b(SEED, arguments.requests, arguments.input_len, arguments.output_len)
    return [*made[:-1], *([work_a(SEED)] if arguments.device != "cpu" else []), made[-1]]


def name_of(work: Work) -> dict[str, Any]:
    return {"work": work.name, "requests": len(work.prompts)}


def between_gpus(llm: LLM, work: Work) -> dict[str, Any]:
    """How much of a profiled decode step's kernel time rank 0 spends in exchanges, and waiting in them."""
    profiled = profile_decode(llm, work, TEMPERATURE, None)
    groups = {group["group"]: group for group in profiled["groups"]}
    exchange = groups.get("communication", {"share": 0.0, "microseconds": 0.0, "calls": 0.0})
    return {
        "profiled_rows": profiled["requests"],
        "step_us": profiled["wall_microseconds"],
        "exchange_share": exchange["share"],
        "exchange_us": exchange["microseconds"],
        "exchanges": exchange["calls"],
    }


# ---- lost ---------------------------------------------------------------------------------


def lost(arguments: argparse.Namespace, results: Results) -> None:
    for name, settings, requests, delay in (
        ("decode, graphs", {}, 16, 2.0),
        ("decode, eager", {"enforce_eager": True}, 16, 2.0),
        ("prefill", {"max_num_seqs": 256, "num_kvcache_blocks": 4096, "enforce_eager": True}, 256, 0.3),
    ):
        if not results.out_of_time("lost", name):
            results.add("lost", killed_in=name, **lose(arguments, small() | settings, requests, delay))


def lose(arguments: argparse.Namespace, settings: dict[str, Any], requests: int, delay: float) -> dict[str, Any]:
    before = gib_in_use()
    llm = LLM(
        model_dir(arguments.shape), tensor_parallel_size=2, device=arguments.device, load_format="dummy", **settings
    )
    assert llm.runner
    victim = llm.runner.team.workers.workers[0].process.pid  # type: ignore[attr-defined]
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        os.kill(victim, signal.SIGKILL)

    prompts = made_prompts(model_dir(arguments.shape), requests, 512)
    llm.generate(prompts[:1], SamplingParams(max_tokens=4, ignore_eos=True), use_tqdm=False)
    timer = threading.Timer(delay, kill)
    timer.start()
    said = "nothing: the work ended first"
    try:
        while not killed:
            llm.generate(prompts, SamplingParams(max_tokens=400, ignore_eos=True), use_tqdm=False)
    except RuntimeError as error:
        said = str(error).splitlines()[0]
    seconds = time.monotonic() - (killed[0] if killed else time.monotonic())
    closed = repr(llm)
    llm.close()
    del llm
    gc.collect()
    release_memory()
    return {
        "seconds_to_error": seconds,
        "said": said,
        "closed": "closed" in closed,
        "workers_left": workers(),
        "gib_before": before,
        "gib_after": gib_in_use(),
    }


# ---- cycle --------------------------------------------------------------------------------


def cycle(arguments: argparse.Namespace, results: Results) -> None:
    for turn in range(TURNS):
        if results.out_of_time("cycle", f"engine {turn} and later"):
            return
        began = time.perf_counter()
        with engine(arguments, model_dir(arguments.shape), 2, load_format="dummy", **small()) as llm:
            up = time.perf_counter() - began
            llm.generate([[1, 2, 3]], SamplingParams(max_tokens=8, ignore_eos=True), use_tqdm=False)
            closing = time.perf_counter()
        results.add(
            "cycle",
            turn=turn,
            start_s=up,
            close_s=time.perf_counter() - closing,
            workers_left=workers(),
            threads=threading.active_count(),
            open_files=len(os.listdir("/proc/self/fd")),
            gib_in_use=gib_in_use(),
        )


PARTS: dict[str, Part] = {"same": same, "lost": lost, "cycle": cycle, "speed": speed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts (default: all)")
    parser.add_argument("--limit-s", type=float, default=420, help="begin nothing after this (default: %(default)s)")
    parser.add_argument(
        "--shape", default="qwen3-0.6b", help="a published shape, or a directory (default: %(default)s)"
    )
    parser.add_argument("--large-shape", default="qwen3-8b", help="of the part speed (default: %(default)s)")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 32, 256], help="work B (default: %(default)s)")
    parser.add_argument("--input-len", type=int, default=512, help="work B (default: %(default)s)")
    parser.add_argument("--output-len", type=int, default=256, help="work B (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=1, help="timed runs of a work (default: %(default)s)")
    parser.add_argument("--device", default="cuda", help="cpu only to try the script out (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="write the results there as JSON")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and len(gpus()) < 2:
        print(f"needs two NVIDIA GPUs and a PyTorch with CUDA; found {len(gpus())}", file=sys.stderr)
        return 1
    faulthandler.dump_traceback_later(arguments.limit_s + 100, exit=True)
    results = Results(arguments.out, arguments.limit_s)
    for name in arguments.only:
        try:
            if not results.out_of_time(name, "all"):
                PARTS[name](arguments, results)
        except Exception as error:  # the other parts are worth having
            traceback.print_exc()
            results.add(name, error=f"{type(error).__name__}: {error}")
    faulthandler.cancel_dump_traceback_later()
    return int(any("error" in result for part in results.found.values() for result in part))


if __name__ == "__main__":
    sys.exit(main())
