"""Tokens per step against the budget, KV blocks in use against the pool, and the GPU's time where it was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanoinfer.trace.trace import Trace
from nanoinfer.trace.words import counted
from nanoinfer.viz.canvas import add_rects, add_text, label_steps, new_figure, plot, text_width
from nanoinfer.viz.marks import add_preemptions, legend, legend_height
from nanoinfer.viz.rules import Entry
from nanoinfer.viz.series import (
    Floats,
    Ints,
    device_times_per_step,
    fullest,
    tokens_per_step,
    used_blocks_per_step,
    wasted_per_step,
)
from nanoinfer.viz.theme import MARGIN, PX, SMALL, WIDTH, Theme, get_theme

TOKENS_HEIGHT, BLOCKS_HEIGHT, TIMES_HEIGHT, GAP = 1.7, 0.8, 0.8, 0.4  # of the panels and between them, inches
FAR_ABOVE = 3.0  # a budget this many times the fullest step is named, not drawn to scale
LEGEND: list[Entry] = [
    ("prefill", "prefill tokens (wide bar)"),
    ("decode", "decode tokens (narrow bar)"),
    ("private", "KV blocks in use"),
    ("preemption", "step with a preemption"),
]


def budget(trace: Trace, theme: str = "light") -> Figure:
    """Draw what each step spent of its token budget, how full the pool was after it, and, in a trace from a GPU, how
    long the GPU computed it.

    Where steps are more than pixels, each column shows the fullest of its steps.

    Args:
        trace: a recorded run.
        theme: "light" or "dark".

    Raises:
        ValueError: an unknown theme, or a trace without steps.
    """
    colors = get_theme(theme)
    if not trace.steps:
        raise ValueError("no step to draw: this trace has 0 steps")
    limit, pool = trace.config.max_num_batched_tokens, trace.config.num_kvcache_blocks
    left = MARGIN + text_width(str(max(limit, pool)), SMALL) + 0.1
    wasted = any(step.columns.wasted for step in trace.steps)
    entries = [*LEGEND, ("wasted", "wasted decode tokens (hollow)")] if wasted else LEGEND
    width, top = WIDTH - left - MARGIN, 0.5 + legend_height(entries) + 0.3
    timed = any("gpu" in step.timing for step in trace.steps)
    heights = [TOKENS_HEIGHT, BLOCKS_HEIGHT, TIMES_HEIGHT] if timed else [TOKENS_HEIGHT, BLOCKS_HEIGHT]
    tops = [top + sum(heights[:i]) + i * GAP for i in range(len(heights))]
    figure = new_figure(colors, tops[-1] + heights[-1] + 0.5, _title(trace, width))
    legend(figure, colors, 0.5, entries)
    panels = [plot(figure, colors, left, y, width, height) for y, height in zip(tops, heights, strict=True)]
    _draw_tokens(panels[0], colors, trace, limit, width)
    _draw_blocks(panels[1], colors, trace, pool, width)
    if timed:
        _draw_times(panels[2], colors, trace, width)
    for axes in panels:
        axes.set_xlim(-0.5, len(trace.steps) - 0.5)
        axes.tick_params(labelbottom=False)
    panels[-1].tick_params(labelbottom=True)
    label_steps(panels[-1], colors)
    return figure


def _title(trace: Trace, width: float) -> str:
    steps = len(trace.steps)
    per_column = steps / _columns(width)
    dense = f"; each column is the fullest of about {per_column:.0f} steps" if per_column >= 1.5 else ""
    return f"Tokens per step: {counted(steps, 'step')}, budget {trace.config.max_num_batched_tokens}{dense}"


def _columns(width: float) -> int:
    return int(width / PX)


def _bars(values: Ints | Floats, bottoms: Ints | Floats, chosen: list[int], share: float) -> np.ndarray[Any, Any]:
    """A bar per chosen step, as (x, y, w, h): `share` of its slice of the steps wide, without the zero ones."""
    cell = len(values) / len(chosen)
    left = np.arange(len(chosen)) * cell - 0.5 + cell * (1 - share) / 2
    bars = np.column_stack([left, bottoms[chosen], np.full(len(chosen), cell * share), values[chosen]])
    return bars[values[chosen] > 0]


def _draw_tokens(axes: Axes, theme: Theme, trace: Trace, limit: int, width: float) -> None:
    prefill, decode = tokens_per_step(trace)
    total, wasted = prefill + decode, wasted_per_step(trace)
    chosen = fullest(total, _columns(width))
    roomy = width / len(chosen) >= 4 * PX
    add_rects(axes, _bars(decode, np.zeros_like(decode), chosen, 0.5 if roomy else 1.0), "decode", fc=theme.decode)
    add_rects(axes, _bars(prefill, decode, chosen, 0.86 if roomy else 1.0), "prefill", fc=theme.prefill)
    if wasted.any():  # the top of the decode bar, hollow
        hollow = _bars(wasted, decode - wasted, chosen, 0.5 if roomy else 1.0)
        add_rects(axes, hollow, "wasted", fc=theme.background, ec=theme.decode, linewidths=1.0 if roomy else 0.5)
    note = _scale(axes, theme, limit, int(total.max()), "budget", 1.04)
    _caption(axes, theme, "tokens computed", note)


def _draw_blocks(axes: Axes, theme: Theme, trace: Trace, pool: int, width: float) -> None:
    used = used_blocks_per_step(trace)
    chosen = fullest(used, _columns(width))
    add_rects(axes, _bars(used, np.zeros_like(used), chosen, 1.0), "blocks", fc=theme.private)
    note = _scale(axes, theme, pool, int(used.max()), "pool", 1.3)
    spacing = 7 * PX * len(trace.steps) / width  # steps; where marks would overlap, one stands for all
    marks: list[int] = []
    for step in trace.steps:
        if step.preempted and (not marks or step.index - marks[-1] >= spacing):
            marks.append(step.index)
    add_preemptions(axes, theme, marks, 0.9 * axes.get_ylim()[1])
    _caption(axes, theme, "KV blocks in use after the step", f"{note}; at most {used.max()} used")


def _draw_times(axes: Axes, theme: Theme, trace: Trace, width: float) -> None:
    """The GPU's time of each step, hollow where no CUDA graph was replayed, and a line at what the CPU took."""
    scale, unit = (1e3, "ms") if trace.header.clock_unit == "seconds" else (1.0, trace.header.clock_unit)
    device, host = (times * scale for times in device_times_per_step(trace))
    chosen = fullest(device, _columns(width))
    graphed = np.array([step.graph_size is not None for step in trace.steps])
    zeros = np.zeros_like(device)
    add_rects(axes, _bars(device * graphed, zeros, chosen, 0.86), "graph", fc=theme.private)
    hollow = _bars(device * ~graphed, zeros, chosen, 0.86)
    add_rects(axes, hollow, "eager", fc=theme.background, ec=theme.private, linewidths=0.8)
    cell = len(host) / len(chosen)
    places = np.arange(len(chosen)) * cell - 0.5 + cell / 2
    axes.plot(places, host[chosen], color=theme.ink, linewidth=0.9, drawstyle="steps-mid", gid="host", zorder=3)
    axes.set_ylim(0, 1.15 * max(device.max(), host[chosen].max()))
    _caption(axes, theme, f"GPU time, {unit} (hollow: without a CUDA graph)", "line: the CPU schedules and launches")


def _scale(axes: Axes, theme: Theme, limit: int, top: int, name: str, headroom: float) -> str:
    """Fit the y axis to the limit, or to the highest bar `top` where the limit would flatten it; says which."""
    if limit > FAR_ABOVE * top > 0:
        axes.set_ylim(0, top * max(headroom, 1.15))
        return f"{name} {limit}: {limit / top:.0f} times the highest bar, far above this scale \u2191"
    axes.set_ylim(0, max(limit, top) * headroom)
    axes.set_yticks([0, limit // 2, limit] if limit % 2 == 0 and name == "budget" else [0, limit])
    axes.axhline(limit, color=theme.ink, linewidth=1.0, linestyle=(0, (4, 3)), gid=name, zorder=3)
    return f"{name} {limit}"


def _caption(axes: Axes, theme: Theme, left: str, right: str) -> None:
    """What the panel shows and what its limit is, on one line above it."""
    style: dict[str, Any] = {"size": SMALL, "color": theme.muted, "va": "bottom", "transform": axes.transAxes}
    add_text(axes, theme, (0, 1.03), left, **style)
    add_text(axes, theme, (1, 1.03), right, ha="right", **style)
