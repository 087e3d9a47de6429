"""A trace as plain text: one line per step, for terminals and logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nanoinfer.trace.steps import RecordedRow, Step
from nanoinfer.trace.trace import Trace

MAX_SHOWN = 6


def text_timeline(trace: Trace) -> Iterator[str]:
    """A heading and then a line for each step: what ran, the queues after it, free blocks, why admission stopped."""
    rows = [_shown(map(_row, step.rows), " ") for step in trace.steps]
    width = min(max([len("ran"), *map(len, rows)]), 72)
    yield f"{'step':>5} {'phase':<8}{'tokens':>7}  {'ran':<{width}}  {'waiting':<12} {'running':<12} {'free':>5}  why"
    for step, ran in zip(trace.steps, rows, strict=True):
        waiting, running = _shown(map(str, step.waiting), ","), _shown(map(str, step.running), ",")
        start = f"{step.index:>5} {step.phase:<8}{step.num_batched_tokens:>7}  {ran:<{width}}"
        yield f"{start}  {waiting:<12} {running:<12} {len(step.free_blocks):>5}  {_why(step)}"


def summary(trace: Trace) -> Iterator[str]:
    """What was run and what came of it, a line each."""
    m, unit, config = trace.metrics(), trace.header.clock_unit, trace.config
    versions = ", ".join(f"{name} {number}" for name, number in trace.header.versions.items())
    yield f"model        {trace.header.model or 'none (simulated)'} on {trace.header.device}; {versions}"
    pool = f"{config.num_kvcache_blocks} blocks of {config.kvcache_block_size} tokens"
    loop = "; overlapped" if config.overlap else ""
    yield f"settings     policy {config.policy}; budget {config.max_num_batched_tokens} tokens; {pool}{loop}"
    yield f"requests     {m['num_requests']}: {m['prompt_tokens']} prompt and {m['output_tokens']} output tokens"
    yield f"steps        {m['num_steps']} in {_number(m['duration'])} {unit}"
    for name in ("queue_time", "ttft", "inter_token_latency", "latency"):
        if m[name]:
            figures = "  ".join(f"{part} {_number(value)}" for part, value in m[name].items())
            yield f"{name.replace('_', ' '):<20} {figures}  ({unit})"
    if m["kv_block_use"]:
        yield f"KV blocks used       mean {m['kv_block_use']['mean']:.0%}  max {m['kv_block_use']['max']:.0%}"
        yield f"KV slots filled      mean {m['kv_slot_use']['mean']:.0%}  max {m['kv_slot_use']['max']:.0%}"
    yield f"prefix hit rate      {m['prefix_hit_rate']:.0%}"
    yield f"preemptions          {m['num_preemptions']}, {m['recomputed_tokens']} tokens computed again"
    if config.overlap:
        yield f"wasted rows          {m['wasted_rows']}, launched before it was known that their sequences had ended"


def _row(row: RecordedRow) -> str:
    chunk = f"({row.chunk[0]}/{row.chunk[1]})" if row.chunk and row.chunk[1] > 1 else ""
    wasted = "(wasted)" if row.wasted else ""
    return f"{row.seq_id}:{row.num_computed}+{row.num_scheduled}{chunk}{wasted}"


def _why(step: Step) -> str:
    victims = "".join(f"; preempted {p.victim} ({p.rule}, {p.tokens} tokens lost)" for p in step.preempted)
    return f"{step.stop}{victims}"


def _shown(items: Iterable[str], separator: str) -> str:
    every = list(items)
    more = f"{separator}+{len(every) - MAX_SHOWN}" if len(every) > MAX_SHOWN else ""
    return separator.join(every[:MAX_SHOWN]) + more or "-"


def _number(value: float) -> str:
    return f"{value:.4g}"
