"""The most likely next tokens of one sequence, or why there are none."""

from __future__ import annotations

from typing import Any

from nanoinfer.explore.live_engine import Engine
from nanoinfer.explore.live_sequences import SequenceList

SHOWN = 8


def candidates_of(llm: Engine, sequences: SequenceList, seq_id: int) -> dict[str, Any]:
    """{"rows": [{"token_id", "text", "probability", "sampled"}], "note": words about them}."""
    told = sequences.told.get(seq_id)
    trace = sequences.trace
    if told is None:
        return _none("Select a sequence to see its most likely next tokens.")
    if not trace.steps:
        return _none("No step has run yet: the model has computed nothing.")
    columns = trace.steps[-1].columns
    if seq_id not in columns.seq_id:
        return _none(f"None: sequence {seq_id} was not computed in the newest step. {_why(told.status)}")
    try:
        found = llm.top_candidates(seq_id, SHOWN)
    except (ValueError, RuntimeError) as error:
        return _none(f"None: {error}")
    columns = trace.steps[-1].columns  # an overlapped engine has waited for one step more
    sampled = columns.token_id[columns.seq_id.index(seq_id)]
    rows = [{**row, "sampled": row["token_id"] == sampled} for row in found]
    return {"rows": rows, "note": _note(sampled, rows, len(trace.steps) - 1)}


def _note(sampled: int | None, rows: list[dict[str, Any]], step: int) -> str:
    start = f"After step {step}, at temperature 1, before any truncation."
    if sampled is None:
        return f"{start} Its prompt is not complete, so nothing was sampled from this."
    if not any(row["sampled"] for row in rows):
        return f"{start} Sampled was token {sampled}, which is not among these {len(rows)}."
    return start


def _why(status: str) -> str:
    """What a sequence without a row is doing instead."""
    return {
        "waiting": "It waits to be admitted.",
        "preempted": "It was preempted and waits to be computed again.",
        "finished": "It has finished.",
        "aborted": "It was aborted.",
    }.get(status, "The step left it out.")


def _none(note: str) -> dict[str, Any]:
    return {"rows": [], "note": note}
