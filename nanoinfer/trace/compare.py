"""Two traces of one workload side by side: where they part, and what each came to.

Steps are compared by what they decided; times and the final tokens of a step count only in the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanoinfer.extras import require
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from nanoinfer.explore.comparison import ComparisonPage

ROW_COLUMNS = "sequence, computed, scheduled, block table"


@dataclass(frozen=True)
class Comparison:
    """The answer of `compare`.

    Attributes:
        first_difference: index of the first step that differs, None if all decisions are equal.
        attribute: what differs there: an attribute of `Step`, or "steps" where one trace has no such step any more.
        value_a, value_b: both values; for "steps", how many each trace has.
    """

    trace_a: Trace
    trace_b: Trace
    first_difference: int | None = None
    attribute: str = ""
    value_a: Any = None
    value_b: Any = None

    @property
    def what(self) -> str:
        """The attribute that differs and both values, in words."""
        if self.first_difference is None:
            return f"Both traces decided the same in all {len(self.trace_a.steps)} steps."
        if self.attribute == "steps":
            return f"a has {self.value_a} steps, b has {self.value_b}"
        columns = f" ({ROW_COLUMNS})" if self.attribute == "rows" else ""
        return f"{self.attribute}{columns}: {self.value_a} in a, {self.value_b} in b"

    def figures(self) -> dict[tuple[str, str], tuple[float | None, float | None]]:
        """The scalar metrics of a and of b by name and part of a summary (else ""); None where a trace has none."""
        a, b = _flat(self.trace_a.metrics()), _flat(self.trace_b.metrics())
        return {name: (a.get(name), b.get(name)) for name in a | b}

    def metrics(self) -> pd.DataFrame:
        """The scalar metrics of both traces and the ratio b / a, one row each. Needs the extra `plots`."""
        require("compare(a, b).metrics()", "pandas")
        import pandas as pd

        named = {f"{name} {part}".rstrip(): values for (name, part), values in self.figures().items()}
        table = pd.DataFrame.from_dict(named, "index", float, columns=["a", "b"])
        table["b / a"] = table["b"] / table["a"].where(table["a"] != 0)
        return table

    def timeline(self, **options: Any) -> Figure:
        """Both timelines over one step axis, with the first difference marked. Needs the extra `plots`."""
        require("compare(a, b).timeline()", "matplotlib")
        from nanoinfer.viz.timeline import side_by_side

        return side_by_side(self.trace_a, self.trace_b, self.first_difference, **options)

    def explore(self, theme: str = "auto", height: int | None = None) -> ComparisonPage:
        """Both replays side by side, locked to the same step or the same time; needs no kernel once shown.

        Raises ValueError unless `theme` is "auto", "light" or "dark" and `height` None or a positive number of pixels.
        """
        from nanoinfer.explore.comparison import ComparisonPage

        return ComparisonPage(self, theme, height)

    def to_html(self, path: str | Path, theme: str = "auto") -> None:
        """Write what `explore` shows to `path` as one file that opens from disk."""
        from nanoinfer.explore.comparison import ComparisonPage

        ComparisonPage(self, theme).write(path)

    def __str__(self) -> str:
        if self.first_difference is None:
            return self.what
        i = self.first_difference
        a, b = (t.explain(i) if i < len(t.steps) else "has ended" for t in (self.trace_a, self.trace_b))
        sides = [f"in both: {a}"] if a == b else [f"in a: {a}", f"in b: {b}"]
        return "\n".join([f"The traces first differ at step {i}. {self.what}", *sides])


def compare(trace_a: Trace, trace_b: Trace) -> Comparison:
    """Find the first step in which two runs of the same requests decided differently.

    Raises:
        ValueError: the traces are not of the same prompts in the same order.
    """
    for trace in (trace_a, trace_b):
        if not isinstance(trace, Trace):
            raise TypeError(f"compare takes two traces, got {trace!r}; Trace.load(path) reads one from a file")
    prompts_a, prompts_b = ([r.prompt_token_ids for r in t.requests.values()] for t in (trace_a, trace_b))
    if prompts_a != prompts_b:
        raise ValueError(
            f"compare needs two runs of one workload; these have {len(prompts_a)} and {len(prompts_b)} requests "
            "whose prompts differ"
        )
    # What was done comes before why: two policies name other reasons for the same step.
    for decided in (_done, _reasons):
        for step_a, step_b in zip(trace_a.steps, trace_b.steps, strict=False):
            a, b = decided(step_a), decided(step_b)
            for name in a:
                if a[name] != b[name]:
                    return Comparison(trace_a, trace_b, step_a.index, name, a[name], b[name])
    lengths = len(trace_a.steps), len(trace_b.steps)
    if lengths[0] != lengths[1]:
        return Comparison(trace_a, trace_b, min(lengths), "steps", *lengths)
    return Comparison(trace_a, trace_b)


def _done(step: Step) -> dict[str, Any]:
    return {
        "rows": [(r.seq_id, r.num_computed, r.num_scheduled, r.block_table) for r in step.rows],
        "phase": step.phase,
        "preempted": [p.victim for p in step.preempted],
        "waiting": step.waiting,
        "running": step.running,
        "free_blocks": step.free_blocks,
    }


def _reasons(step: Step) -> dict[str, Any]:
    return {"stop": str(step.stop), "decode_stop": str(step.decode_stop)}


def _flat(metrics: dict[str, Any]) -> dict[tuple[str, str], float]:
    """The numbers alone, by name and part of a summary."""
    flat: dict[tuple[str, str], float] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            flat |= {(name, part): number for part, number in value.items()}
        elif isinstance(value, (int, float)):
            flat[name, ""] = float(value)
    return flat
