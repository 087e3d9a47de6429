"""Every sequence of a growing trace as it stands now: where it is, what it has said, what it may say next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nanoinfer.explore.live_engine import Engine
from nanoinfer.trace.events import endings
from nanoinfer.trace.state import Unread
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace

Decode = Callable[[list[int]], str]

MOST_LISTED = 200  # sequences; the newest ones are kept
MOST_TAIL = 240  # characters of a text in the list
MOST_TEXT = 6000  # characters of the selected sequence's text
SHOWN = 8  # candidates for the next token
LIVE = ("waiting", "prefill", "decode", "preempted")  # states of a sequence that is still in the engine


@dataclass
class Told:
    """What is known of one sequence."""

    status: str = "waiting"  # one of LIVE, or "finished" or "aborted"
    reason: str = ""  # why it finished
    token_ids: list[int] = field(default_factory=list)  # sampled since recording began
    text: str = ""
    decoded: int = 0  # tokens that `text` stands for


class SequenceList:
    """Follows a trace: each `update` reads what came since the last."""

    def __init__(self, trace: Trace, decode: Decode | None) -> None:
        self.trace = trace
        self.told: dict[int, Told] = {}
        self._decode = decode
        self._unread = Unread(trace)
        self._steps = self._outputs = 0
        for seq_id in trace.header.initial.waiting:
            self._of(seq_id)
        for seq_id in trace.header.initial.running:
            self._of(seq_id).status = "decode"

    def update(self) -> None:
        trace = self.trace
        for seq_id in trace.requests:
            self._of(seq_id)
        for step in trace.steps[self._steps :]:
            self._read_events(step.index)
            self._read_step(step)
        self._read_events(len(trace.steps))
        for output in trace.outputs[self._outputs :]:
            told = self._of(output["request_id"])
            told.text, told.decoded = output["text"] or told.text, len(told.token_ids)
        self._steps, self._outputs = len(trace.steps), len(trace.outputs)

    def alive(self) -> list[int]:
        """Ids of the sequences that are still in the engine."""
        return [seq_id for seq_id, told in self.told.items() if told.status in LIVE]

    def _of(self, seq_id: int) -> Told:
        return self.told.setdefault(seq_id, Told())

    def _read_events(self, step: int) -> None:
        """What happened up to `step`. Its rows come after: whoever was preempted in an undone step may have one."""
        events = self._unread.up_to(step)
        for event in events:
            if event.kind == "preempt" and event.seq_id is not None:
                self._of(event.seq_id).status = "preempted"
        for ending in endings(events):
            told = self._of(ending.seq_id)
            told.status, told.reason = ("aborted", "") if ending.aborted else ("finished", ending.reason)

    def _read_step(self, step: Step) -> None:
        c = step.columns
        for seq_id, token, chunk in zip(c.seq_id, c.token_id, c.chunk, strict=True):
            told = self._of(seq_id)
            if told.status in LIVE:  # not if it finished in this step
                told.status = "prefill" if chunk else "decode"
            if token is not None:
                told.token_ids.append(token)

    # ---- as the widget sends it -----------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """The newest sequences in order, with the end of each text."""
        return [self._row(seq_id) for seq_id in list(self.told)[-MOST_LISTED:]]

    def _row(self, seq_id: int) -> dict[str, Any]:
        told, request = self.told[seq_id], self.trace.requests.get(seq_id)
        text = self.text(seq_id)
        return {
            "id": seq_id,
            "status": told.status,
            "reason": told.reason,
            "alive": told.status in LIVE,
            "tokens": len(told.token_ids),
            "max_tokens": request.sampling_params.get("max_tokens") if request else None,
            "prompt": self.prompt(seq_id)[:MOST_TAIL],
            "text": text if len(text) <= MOST_TAIL else f"\u2026{text[-MOST_TAIL:]}",
        }

    def prompt(self, seq_id: int) -> str:
        """As text, or as token ids where there was none."""
        request = self.trace.requests.get(seq_id)
        if request is None:
            return ""
        return _ids(request.prompt_token_ids) if request.prompt is None else request.prompt

    def text(self, seq_id: int) -> str:
        """What it has generated so far."""
        told = self.told[seq_id]
        if told.decoded < len(told.token_ids):
            told.text = self._decode(told.token_ids) if self._decode else _ids(told.token_ids)
            told.decoded = len(told.token_ids)
        return told.text

    def selected(self, seq_id: int) -> dict[str, Any] | None:
        """The whole prompt and text of one sequence, or None for an unknown one."""
        if seq_id not in self.told:
            return None
        text, prompt = self.text(seq_id), self.prompt(seq_id)
        shown = text if len(text) <= MOST_TEXT else f"\u2026{text[-MOST_TEXT:]}"
        return {**self._row(seq_id), "prompt": prompt[:MOST_TEXT], "text": shown}


def _ids(token_ids: list[int]) -> str:
    return f"token ids {' '.join(map(str, token_ids))}"


# ---- the most likely next tokens ---------------------------------------------------------


def candidates_of(llm: Engine, sequences: SequenceList, seq_id: int) -> dict[str, Any]:
    """{"rows": [{"token_id", "text", "probability", "sampled"}], "note": words about them}."""
    told, trace = sequences.told.get(seq_id), sequences.trace
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
