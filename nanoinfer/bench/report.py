"""What a run leaves behind: the evidence document and the lines that are printed."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nanoinfer import __version__
from nanoinfer.bench.measure import Runs, Work, recording_cost
from nanoinfer.bench.roofline import Bandwidth, ModelBytes, floor_seconds

OURS, RECORDING = "nanoinfer", "nanoinfer, recording"
PACKAGES = ("torch", "triton", "flash-attn", "transformers", "vllm", "numpy")
WORK_COLUMNS = ("work", "requests", "prompt tok", "output tok")
SPEED_COLUMNS = ("engine", "seconds", "tok/s", "slowest", "fastest", "of floor")


def versions() -> dict[str, str | None]:
    """Of Python and of every package that matters; None for one that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "nanoinfer": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def machine(device: str) -> dict[str, Any]:
    """The device the model ran on, by name, and the host around it."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else processor()
    return {
        "device": name,
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
    }


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def case(
    work: Work, runs: dict[str, Runs], model: ModelBytes, bandwidth: Bandwidth, max_num_seqs: int, devices: int
) -> dict[str, Any]:
    """One work on every engine, with the floor and the comparisons."""
    tokens = sum(work.output_lens)
    total_bandwidth = devices * bandwidth.bytes_per_second
    floor = floor_seconds(work.prompt_lens, work.output_lens, max_num_seqs, model, total_bandwidth)
    result: dict[str, Any] = {
        "work": work.name,
        "requests": len(work.prompts),
        "prompt_tokens": sum(work.prompt_lens),
        "output_tokens": tokens,
        "floor": {"seconds": floor, "tokens_per_second": tokens / floor if floor else None},
        "engines": {name: r.to_dict() for name, r in runs.items()},
    }
    if RECORDING in runs:
        result["recording_cost_percent"] = recording_cost(runs[OURS], runs[RECORDING])
    for peer in runs.keys() - {OURS, RECORDING}:
        same = sum(a == b for a, b in zip(runs[OURS].warm_up, runs[peer].warm_up, strict=True))
        result["against"] = {"peer": peer, "ratio": runs[OURS].speed / runs[peer].speed, "equal_outputs": same}
    return result


def lines(evidence: dict[str, Any]) -> Iterator[str]:
    """The document in words and tables, for the terminal."""
    yield f"{evidence['model']} on {evidence['machine']['device']}, {evidence['engine']['dtype']}, {_repeats(evidence)}"
    yield ""
    yield from table(
        (*WORK_COLUMNS, *SPEED_COLUMNS), [row for case in evidence["cases"] for row in _rows(case)], left=(0, 4)
    )
    yield ""
    for case in evidence["cases"]:
        yield from _comparisons(case, f"work {case['work']}, {case['requests']} requests: ")
    yield _floor_line(evidence)
    if startup := evidence.get("startup"):
        parts = ", ".join(f"{name.replace('_', ' ')} {seconds:.2f} s" for name, seconds in startup.items())
        yield f"start in a fresh process, empty compile caches: {parts}"
    if profiled := evidence.get("profile"):
        yield ""
        yield from profile_lines(profiled)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> Iterator[str]:
    """Aligned columns; those in `left` begin together, the others end together."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        cells = (c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        yield "  ".join(cells).rstrip()


def profile_lines(profiled: dict[str, Any]) -> Iterator[str]:
    """A profile as a table, and what the step's time beside it was."""
    wall, groups = profiled["wall_microseconds"], profiled["groups"]
    yield (
        f"one decode step of {profiled['requests']} requests under the profiler, "
        f"mean of {profiled['steps']}: {wall:,.0f} us"
    )
    rows = [
        [g["group"], f"{g['microseconds']:,.1f}", f"{100 * g['share']:.1f} %", f"{g['calls']:,.1f}"] for g in groups
    ]
    yield from table(("group", "us/step", "share", "calls/step"), rows)
    if idle := profiled["idle"]:
        share = 100 * idle["idle"] / idle["span"] if idle["span"] else 0
        gaps = f"{idle['count']:,} gaps, the longest {idle['longest']:,.1f} us"
        yield f"idle between kernels: {share:.1f} % of the time in {gaps}"
    else:
        outside = max(0.0, wall - sum(g["microseconds"] for g in groups))
        yield f"outside operators (scheduling, Python, the profiler itself): {outside:,.0f} us/step"


def _repeats(evidence: dict[str, Any]) -> str:
    count = len(evidence["cases"][0]["engines"][OURS]["seconds"])
    return f"median of {count} runs after one warm-up" if count > 1 else "one run after one warm-up"


def _rows(case: dict[str, Any]) -> Iterator[list[str]]:
    first = [case["work"], *(f"{case[key]:,}" for key in ("requests", "prompt_tokens", "output_tokens"))]
    floor = case["floor"]["tokens_per_second"]
    for name, runs in case["engines"].items():
        speed, speeds = runs["median_tokens_per_second"], runs["tokens_per_second"]
        figures = [f"{runs['median_seconds']:.3f}", *(f"{v:,.1f}" for v in (speed, min(speeds), max(speeds)))]
        yield [*first, name, *figures, f"{100 * speed / floor:.1f} %" if floor else "-"]
        first = [""] * len(first)


def _comparisons(case: dict[str, Any], where: str) -> Iterator[str]:
    if "recording_cost_percent" in case:
        yield f"{where}recording costs {case['recording_cost_percent']:+.1f} % of the time"
    if against := case.get("against"):
        equal = f"{against['equal_outputs']} of {case['requests']} outputs equal"
        yield f"{where}{OURS} / {against['peer']} = {against['ratio']:.2f} in tokens per second ({equal})"


def _floor_line(evidence: dict[str, Any]) -> str:
    model, bandwidth = evidence["model_bytes"], evidence["bandwidth"]
    return (
        f"byte floor: a decode step reads {model['weights'] / 1e9:.3f} GB of weights and {model['kv_per_token']:,} "
        f"bytes for each token of context, at {bandwidth['bytes_per_second'] / 1e12:.3g} TB/s a device "
        f"({bandwidth['source']})"
    )
