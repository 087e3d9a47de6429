"""What `explain` says of endings, and of steps that were launched before the tokens before them were known."""

from __future__ import annotations

from nanoinfer.trace.events import Ending, Event, endings
from nanoinfer.trace.state import events_of_step
from nanoinfer.trace.trace import Trace


def chosen_early(trace: Trace, i: int) -> list[str]:
    """Whether step `i` was scheduled while the step before it was still computed."""
    if not trace.config.overlap or i == 0:
        return []
    before = trace.steps[i - 1]
    known = before.clock + before.timing["duration"] <= trace.steps[i].clock
    return [] if known else [f"It was chosen before the tokens of step {i - 1} were known."]


def wasted_rows(trace: Trace, i: int) -> list[str]:
    """The rows of step `i` whose sequences had ended already, and why that was not known."""
    wasted = trace.steps[i].columns.wasted
    if not wasted:
        return []
    ended = {e.seq_id: e for step in (i, i + 1) for e in endings(events_of_step(trace.events, step))}
    return [_wasted(seq_id, i, ended.get(seq_id)) for seq_id in wasted]


def _wasted(seq_id: int, i: int, ending: Ending | None) -> str:
    start = f"Sequence {seq_id}'s row was wasted: "
    if ending is None or ending.aborted:
        return f"{start}it was aborted after this step was launched."
    why = f"step {i - 1} had already ended it ({ending.reason})"
    return f"{start}{why}, which was known only after this step was launched."


def departures(trace: Trace, events: list[Event]) -> list[str]:
    """Who left in a step with these events, or was found to have left."""
    return [_departure(trace, ending) for ending in endings(events) if not ending.corrects]


def _departure(trace: Trace, ending: Ending) -> str:
    who, reason = f"Sequence {ending.seq_id}", ending.reason
    if ending.aborted:
        return f"{who} was aborted."
    if not trace.config.overlap:
        return f"{who} finished ({reason}) and freed its blocks."
    if ending.by_length:
        return f"{who} finished ({reason}) and freed its blocks; its last token was still being computed."
    return f"{who} had finished ({reason}) in step {ending.step - 1}, which was known only now; its blocks are free."


def corrections(trace: Trace, after: int) -> list[str]:
    """Who ended for its length in the step before `after`, with a last token that ends it anyway."""
    return [
        f"The last token of sequence {ending.seq_id}, which ended for its length, proved to be one that ends it: its "
        f"reason became {ending.reason}."
        for ending in endings(events_of_step(trace.events, after))
        if ending.corrects
    ]


def device_time(trace: Trace, i: int) -> list[str]:
    """How long the device took for step `i`, and which CUDA graph it replayed, where that is known."""
    step = trace.steps[i]
    if "gpu" not in step.timing and step.graph_size is None:
        return []
    verbs = (("launch", "launched in"), ("gpu", "computed in"))
    parts = [f"{verb} {_duration(trace, step.timing[name])}" for name, verb in verbs if name in step.timing]
    rows = len(step.columns.seq_id)
    how = f"by the CUDA graph for {step.graph_size} rows ({rows} used)" if step.graph_size is not None else "eagerly"
    return [f"Device: {', '.join([*parts, f'run {how}'])}."]


def _duration(trace: Trace, value: float) -> str:
    unit = trace.header.clock_unit
    return f"{value * 1000:.3g} ms" if unit == "seconds" else f"{value:.3g} {unit}"
