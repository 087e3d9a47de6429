"""Throughput against batch size, with the byte floor drawn in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from nanoinfer.viz.theme import LIGHT, SMALL, TITLE

MARKERS = "osD"


def check_format(path: Path) -> None:
    """Raise ValueError, with the endings that would do, for a file that `plot` could not write."""
    known = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix.removeprefix(".").lower() not in known:
        raise ValueError(f"--plot must end in one of .{', .'.join(known)}, got {path}")


def plot(evidence: dict[str, Any], path: Path) -> None:
    """Draw the cases of an evidence document to `path`; matplotlib knows the format by the name.

    Whiskers run from the slowest to the fastest repetition.
    """
    cases = evidence["cases"]
    sizes = [case["requests"] for case in cases]
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    limit = [case["floor"]["tokens_per_second"] for case in cases]
    bandwidth = evidence["bandwidth"]
    label = f"what the byte floor allows at {bandwidth['bytes_per_second'] / 1e12:.3g} TB/s ({bandwidth['source']})"
    axes.plot(sizes, limit, color=LIGHT.muted, linestyle="--", marker="_", label=label)
    colours = (LIGHT.prefill, LIGHT.decode, LIGHT.preempted)
    for i, name in enumerate(cases[0]["engines"]):
        runs = [case["engines"][name] for case in cases]
        middle = [run["median_tokens_per_second"] for run in runs]
        low = [m - min(run["tokens_per_second"]) for m, run in zip(middle, runs, strict=True)]
        high = [max(run["tokens_per_second"]) - m for m, run in zip(middle, runs, strict=True)]
        axes.errorbar(sizes, middle, [low, high], color=colours[i], marker=MARKERS[i], capsize=3, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    axes.set_xlabel("requests in the batch")
    axes.set_ylabel("output tokens per second")
    axes.set_title(f"{evidence['model']} on {evidence['machine']['device']}, work {cases[0]['work']}", fontsize=TITLE)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=SMALL)
    figure.savefig(path, dpi=150)
