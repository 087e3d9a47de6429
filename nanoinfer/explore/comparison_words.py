"""What a comparison says in words and figures: who is who, what differs first, and the metrics of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nanoinfer.trace.compare import Comparison
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace
from nanoinfer.trace.words import listed, sequences

MOST_NAMED = 3  # settings in a name
MOST_LISTED = 12  # sequences or blocks in a sentence
TIMES = frozenset({"duration", "queue_time", "ttft", "inter_token_latency", "latency"})
SHARES = frozenset({"kv_block_use", "kv_slot_use", "prefix_hit_rate"})
COUNTED = {
    "num_requests": "requests",
    "num_steps": "steps",
    "prompt_tokens": "tokens",
    "output_tokens": "tokens",
    "recomputed_tokens": "tokens",
    "num_preemptions": "preemptions",
    "wasted_rows": "rows",
}
SMALL_UNITS = ((1.0, 1.0, "seconds"), (1e-3, 1e3, "ms"), (0.0, 1e6, "\u00b5s"))  # from so many seconds: factor, name


def side_names(a: Trace, b: Trace) -> tuple[str, str]:
    """What tells the two runs apart: the settings that differ, else who scheduled, else nothing."""
    settings = a.header.config.keys() & b.header.config.keys()
    order = ["policy", *(name for name in a.header.config if name != "policy")]
    differing = [s for s in order if s in settings and a.header.config[s] != b.header.config[s]]
    if differing:
        more = f" and {len(differing) - MOST_NAMED} more" if len(differing) > MOST_NAMED else ""
        named = [[f"{s} {t.header.config[s]}" for s in differing[:MOST_NAMED]] for t in (a, b)]
        return ", ".join(named[0]) + more, ", ".join(named[1]) + more
    classes = [t.header.scheduler_cls.rpartition(".")[2] for t in (a, b)]
    if classes[0] != classes[1]:
        return classes[0], classes[1]
    return (f"policy {a.config.policy}",) * 2


# ---- the first difference ------------------------------------------------------------------------


def difference_text(comparison: Comparison) -> str:
    """One or two sentences: where the traces part, and what is different there."""
    i, what = comparison.first_difference, comparison.what
    if i is None:
        return what
    if comparison.attribute != "steps":
        steps = comparison.trace_a.steps[i], comparison.trace_b.steps[i]
        values = [_shortened(str(value)) for value in (comparison.value_a, comparison.value_b)]
        what = _rows_apart(*steps) or f"{comparison.attribute} is {values[0]} in a, {values[1]} in b"
    return f"The traces first differ at step {i}: {what}."


def _rows_apart(a: Step, b: Step) -> str | None:
    """What only one of two steps computes, or computes otherwise; None if their rows are equal."""
    rows = [{r.seq_id: (r.num_computed, r.num_scheduled, r.block_table) for r in step.rows} for step in (a, b)]
    said = [
        f"only {side} computes {sequences([i for i in mine if i not in other], MOST_LISTED)}"
        for side, mine, other in (("a", rows[0], rows[1]), ("b", rows[1], rows[0]))
        if mine.keys() - other.keys()
    ]
    both = [i for i in rows[0] if i in rows[1] and rows[0][i] != rows[1][i]]
    if both and len(said) < 2:
        said.append(_row_apart(both[0], rows[0][both[0]], rows[1][both[0]]))
    if not said and list(rows[0]) != list(rows[1]):
        said = ["both compute the same sequences, in another order"]
    return "; ".join(said) or None


def _row_apart(seq_id: int, a: tuple[int, int, list[int]], b: tuple[int, int, list[int]]) -> str:
    if a[:2] != b[:2]:
        tokens = [f"{computed} to {computed + scheduled - 1}" for computed, scheduled, _ in (a, b)]
        return f"sequence {seq_id} gets its tokens {tokens[0]} computed in a, {tokens[1]} in b"
    return f"sequence {seq_id} lies in blocks {listed(a[2], MOST_LISTED)} in a, {listed(b[2], MOST_LISTED)} in b"


def _shortened(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[:most]}\u2026"


# ---- metrics -------------------------------------------------------------------------------------


def metrics_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """The rows of `comparison.figures()` as text: {"name", "unit", "a", "b", "ratio", "more"}.

    `more` marks what a first look can do without: of every summary all but the mean.
    """
    units = [trace.header.clock_unit for trace in (comparison.trace_a, comparison.trace_b)]
    rows = []
    for (metric, part), values in comparison.figures().items():
        unit, texts = _formatted(metric, values, units)
        comparable = units[0] == units[1] or not _is_timed(metric)
        name, ratio = f"{metric} {part}".rstrip(), _ratio(*values) if comparable else "\u2013"
        more = part not in ("", "mean")
        rows.append({"name": name, "unit": unit, "a": texts[0], "b": texts[1], "ratio": ratio, "more": more})
    return rows


def _is_timed(metric: str) -> bool:
    return metric in TIMES or metric.endswith("_per_clock_unit")


def _formatted(metric: str, values: Sequence[float | None], units: list[str]) -> tuple[str, list[str]]:
    """The unit of a row, and its values in it."""
    if metric in SHARES:
        return "%", _digits(values, 100)
    if metric in COUNTED:
        return COUNTED[metric], ["\u2013" if v is None else f"{v:,.0f}" for v in values]
    if not _is_timed(metric):
        return "", _digits(values)
    if units[0] != units[1]:
        return f"{units[0]} in a, {units[1]} in b", _digits(values)
    if metric not in TIMES:
        return f"tokens per {units[0].removesuffix('s')}", _digits(values)
    factor, unit = _scale(max((v for v in values if v is not None), default=0.0), units[0])
    return unit, _digits(values, factor)


def _scale(largest: float, unit: str) -> tuple[float, str]:
    """A factor and a unit that make `largest` a readable number."""
    if unit != "seconds":
        return 1.0, unit
    return next((factor, name) for least, factor, name in SMALL_UNITS if largest >= least)


def _digits(values: Sequence[float | None], factor: float = 1) -> list[str]:
    """Whole numbers if all are, else three significant digits and no fewer than those before the point."""
    scaled = [None if v is None else factor * v for v in values]
    whole = all(v is None or v == int(v) for v in scaled)
    return ["\u2013" if v is None else _number(v, whole) for v in scaled]


def _number(value: float, whole: bool) -> str:
    if whole or value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if abs(value) >= 0.001 else f"{value:.1e}"


def _ratio(a: float | None, b: float | None) -> str:
    if a is None or b is None or a == 0:
        return "\u2013"
    return f"{b / a:.2f}" if abs(b / a) < 100 else f"{b / a:,.0f}"
