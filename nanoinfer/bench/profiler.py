"""Where the time of a decode step goes: a few steps under torch's profiler, summed by kind of kernel.

Kinds are told by the kernel's name. On the CPU the entries are operators with the time they
spent themselves, and the norm and rotary parts of the model, made of plain arithmetic there, count as "other".
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from nanoinfer import LLM, SamplingParams
from nanoinfer.bench.measure import Work

WARM_STEPS, PROFILED_STEPS = 4, 16
OTHER = "other"
# The first pattern found in a name gives its group: flash_fwd_splitkv is attention though "splitk" is a matmul's.
GROUPS = {  # the first that matches; our own kernels begin with an underscore
    "attention": r"_attend_|_join_splits|flash|attention|attn|fmha|paged|kv_?cache|store_?kv|combine_kv",
    "communication": r"nccl|all_?reduce|all_?gather",
    "matmul": r"_one_row|gemm|gemv|matmul|cutlass|cublas|xmma|nvjet|splitk|::(add|b|baddb)?mm\b|::linear",
    "sampling": r"_race_|argmax|arg_?reduce|top_?k|softmax|sort|multinomial|exponential|sampl|gumbel|philox",
    "rotary": r"rotary|rope|rotate",
    "norm": r"norm|rsqrt",
    "activation": r"silu",
}


@dataclass(frozen=True)
class Entry:
    """All calls of one kernel or operator."""

    name: str
    count: int
    microseconds: float


@dataclass(frozen=True)
class Gaps:
    """When a GPU had nothing to do between its first and its last kernel, in microseconds."""

    idle: float
    count: int
    longest: float
    span: float


def group_of(name: str) -> str:
    """The group of a kernel or operator."""
    return next((group for group, pattern in GROUPS.items() if re.search(pattern, name.lower())), OTHER)


def by_group(entries: Iterable[Entry], steps: int) -> list[dict[str, Any]]:
    """{"group", "microseconds" and "calls" of one step, "share"}, the costliest first."""
    spent: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for entry in entries:
        spent[group_of(entry.name)] += entry.microseconds
        calls[group_of(entry.name)] += entry.count
    total = sum(spent.values()) or 1.0
    return [
        {"group": group, "microseconds": us / steps, "calls": calls[group] / steps, "share": us / total}
        for group, us in sorted(spent.items(), key=lambda item: -item[1])
    ]


def idle_gaps(intervals: Iterable[tuple[float, float]]) -> Gaps:
    """Gaps in the union of (start, end) intervals."""
    ordered = sorted(intervals)
    if not ordered:
        return Gaps(0.0, 0, 0.0, 0.0)
    gaps, end = [], ordered[0][1]
    for start, stop in ordered[1:]:
        if start > end:
            gaps.append(start - end)
        end = max(end, stop)
    return Gaps(sum(gaps), len(gaps), max(gaps, default=0.0), end - ordered[0][0])


def profile_decode(llm: LLM, work: Work, temperature: float, chrome_trace: Path | None) -> dict[str, Any]:
    """Profile decode steps of `work`'s requests on an idle engine, which is idle again afterwards.

    Returns:
        {"requests", "steps", "wall_microseconds" of one step, "groups" as `by_group` gives them, "idle"}; "idle" is
        None on the CPU.
    """
    prompts = work.shifted(-1, llm.config.vocab_size or 0)
    live = set()
    for prompt, wanted in zip(prompts, work.output_lens, strict=True):
        most = max(wanted, 2 * (WARM_STEPS + PROFILED_STEPS))
        params = SamplingParams(temperature=temperature, max_tokens=most, ignore_eos=True)
        live.add(llm.add_request(prompt, params))
    while llm.scheduler.waiting:
        live -= _step(llm)
    for _ in range(WARM_STEPS):
        live -= _step(llm)
    cuda = llm.config.device == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]) as profiler:
        start = time.perf_counter()
        for _ in range(PROFILED_STEPS):
            live -= _step(llm)
        if cuda:
            torch.cuda.synchronize()
        wall = time.perf_counter() - start
    for request_id in live:
        llm.abort(request_id)
    if chrome_trace:
        profiler.export_chrome_trace(str(chrome_trace))
    kernels = [e for e in profiler.events() or [] if e.device_type.name == "CUDA" and not e.is_user_annotation]
    entries = [Entry(e.name, 1, e.time_range.elapsed_us()) for e in kernels] if cuda else _operators(profiler)
    gaps = idle_gaps((e.time_range.start, e.time_range.end) for e in kernels)
    return {
        "requests": len(prompts),
        "steps": PROFILED_STEPS,
        "wall_microseconds": wall * 1e6 / PROFILED_STEPS,
        "groups": by_group(entries, PROFILED_STEPS),
        "idle": asdict(gaps) if cuda else None,
    }


def _step(llm: LLM) -> set[int]:
    return {output["request_id"] for output in llm.step()}


def _operators(profiler: profile) -> list[Entry]:
    return [Entry(e.key, e.count, e.self_cpu_time_total) for e in profiler.key_averages()]
