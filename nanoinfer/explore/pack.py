"""A trace as a payload for the browser: everything the explorer shows, and nothing it can work out.

    {"format": 1, "meta": {...}, "chunks": [{"start": 0, "end": 300, "layout": [...], "data": "..."}]}

`meta` holds the settings, `initial` (the state before the first frame) and the tour. Each chunk holds
frames `start` to `end - 1`; a live run appends chunks. `frames` says what a frame is. A chunk's `data`
is one buffer of columns (see `columns`), which `layout` lists as [name, type, offset, bytes]:

    prefill decode offset    tokens of a frame (of its fullest step, `offset` steps into the frame)
    wasted                   decode tokens of that step which were computed for sequences that had ended
    used                     blocks in use after it
    phase stop decode_stop   numbers of strings in `<name>_table`
    queue_*                  edits of the queues: which (0 waiting, 1 running), position, sequence; removals
                             (position -1) come first, insertions go from left to right
    table_*                  edits of block tables: the sequence keeps so many blocks and gains so many more,
                             which stand one after the other in `table_block`
    findable_block           a block that the prefix cache can find from now on, or ~block if no longer
    changed_block            blocks that changed hands or lost their content
    arrived_seq              who joined `waiting` before the step
    ended_seq ended_reason   who finished or was aborted, and why
    preempted_*              records: victim, on_behalf_of, blocks, tokens, self (1 if it was its own victim)
    bar_*                    the timeline (see `bars`); a chunk's bars replace all that end at `start` or later
    sequences                [{id, arrival, prompt_tokens, prompt, output}]
    prompt_* sample_*        token ids by sequence: seq, count and ids, which may be cut; of the samples also
                             first (position of the first one) and total (how many there were)
    sentences headline       `trace.explain` of every frame, a sentence a line, and the number (from 0) of the line
                             that says what ran
    marks                    {"preemption", "hit", "refusal"}: frames to jump to

Columns with a `<name>_count` are ragged: so many of their entries belong to each frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nanoinfer.explore.bars import put_bars
from nanoinfer.explore.changes import Changes
from nanoinfer.explore.columns import Columns
from nanoinfer.explore.decisions import put_decisions
from nanoinfer.explore.frames import MOST_FRAMES, Frames, frames_of
from nanoinfer.trace.spans import KINDS
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace

FORMAT = 1
MOST_IDS = 200_000  # of all prompts, and again of all outputs: beyond it every sequence keeps its first ones
MOST_TEXT = 2_000_000  # characters of all texts
Bookmark = tuple[int, int | None, str]  # step, sequence to select, caption


def pack(trace: Trace, tour: Sequence[Bookmark] | None = None, most_frames: int = MOST_FRAMES) -> dict[str, Any]:
    """The payload of a finished recording.

    Args:
        trace: a recorded run.
        tour: bookmarks in the order in which they are visited.
        most_frames: above it, several steps become one frame.

    Raises:
        ValueError: a bookmark names a step or a sequence that the trace does not have.
    """
    packer = Packer(trace, frames_of(trace, most_frames).size)
    payload = packer.header(checked_tour(trace, tour or ()))
    payload["chunks"].append(packer.chunk())
    return payload


class Packer:
    """Packs a trace that may still grow, chunk by chunk."""

    def __init__(self, trace: Trace, size: int = 1) -> None:
        self.trace = trace
        self.size = size
        self._changes = Changes(trace)
        self._packed = 0  # frames

    def header(self, tour: Sequence[Bookmark] = ()) -> dict[str, Any]:
        """The payload without any chunk."""
        config, initial = self.trace.config, self.trace.header.initial
        meta = {
            "num_blocks": len(initial.ref_counts),
            "block_size": config.kvcache_block_size,
            "budget": config.max_num_batched_tokens,
            "policy": config.policy,
            "overlap": bool(config.overlap),
            "model": self.trace.header.model or "simulated",
            "steps_per_frame": self.size,
            "bar_kinds": KINDS,
            "initial": {
                "waiting": initial.waiting,
                "running": initial.running,
                "tables": list(initial.block_tables.items()),
                "findable": sorted(set(initial.hash_index.values())),
            },
            "tour": [{"step": step, "select": select, "caption": caption} for step, select, caption in tour],
        }
        return {"format": FORMAT, "meta": meta, "chunks": []}

    def chunk(self) -> dict[str, Any]:
        """The frames that came since the last call."""
        trace, start = self.trace, self._packed
        frames = Frames(len(trace.steps), self.size)
        end = self._packed = frames.count
        columns = Columns()
        put_decisions(columns, trace, frames, start, end)
        self._changes.put(columns, frames, start, end)
        put_bars(columns, trace, frames, start)
        put_sequences(columns, trace, trace.steps[start * self.size : frames.steps])
        return {"start": start, "end": end, "steps": frames.steps, **columns.encode()}


def checked_tour(trace: Trace, tour: Sequence[Bookmark]) -> list[Bookmark]:
    """`tour` with every step counted from the start."""
    checked: list[Bookmark] = []
    for number, (step, select, caption) in enumerate(tour, 1):
        try:
            checked.append((trace.step_index(step), checked_sequence(trace, select), str(caption)))
        except (IndexError, ValueError) as error:
            raise ValueError(f"bookmark {number} of the tour: {error}") from error
    return checked


def checked_sequence(trace: Trace, seq_id: int | None) -> int | None:
    """`seq_id`. Raises ValueError if the trace has no such sequence."""
    if seq_id is not None and seq_id not in trace.requests:
        known = ", ".join(map(str, sorted(trace.requests)[:20])) or "none"
        raise ValueError(f"no sequence {seq_id} in this trace; it has {known}")
    return seq_id


def put_sequences(columns: Columns, trace: Trace, steps: list[Step]) -> None:
    """Put the requests, and the tokens that `steps` sampled for them."""
    texts = {output["request_id"]: output.get("text") for output in trace.outputs if "request_id" in output}
    room = MOST_TEXT // max(2 * len(trace.requests), 1)
    described = [
        {
            "id": seq_id,
            "arrival": request.arrival,
            "prompt_tokens": len(request.prompt_token_ids),
            "prompt": shortened(request.prompt, room),
            "output": shortened(texts.get(seq_id), room),
        }
        for seq_id, request in sorted(trace.requests.items())
    ]
    columns.json("sequences", described)
    _put_ids(columns, "prompt", {i: r.prompt_token_ids for i, r in sorted(trace.requests.items())})
    first, sampled = _samples(steps)
    _put_ids(columns, "sample", sampled)
    columns.numbers("sample_first", list(first.values()))
    columns.numbers("sample_total", list(map(len, sampled.values())))


def shortened(text: str | None, most: int) -> str | None:
    """`text`, or its first `most` characters and how many more there are."""
    if text is None or len(text) <= most:
        return text
    return f"{text[:most]}\u2026 ({len(text) - most} more characters)"


def _samples(steps: Iterable[Step]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """(position of the first, all) sampled tokens by sequence, dropped samples of middle chunks left out."""
    first: dict[int, int] = {}
    sampled: dict[int, list[int]] = {}
    for step in steps:
        c = step.columns
        rows = zip(c.seq_id, c.num_computed, c.num_scheduled, c.token_id, strict=True)
        for seq_id, computed, scheduled, token in rows:
            if token is not None:
                first.setdefault(seq_id, computed + scheduled)
                sampled.setdefault(seq_id, []).append(token)
    return first, sampled


def _put_ids(columns: Columns, name: str, ids: dict[int, list[int]]) -> None:
    """Put token ids by sequence: whose, how many, and all of them one after the other."""
    room = MOST_IDS // max(len(ids), 1)
    total = sum(map(len, ids.values()))
    kept = [tokens[:room] if total > MOST_IDS else tokens for tokens in ids.values()]
    columns.numbers(f"{name}_seq", list(ids))
    columns.numbers(f"{name}_count", [len(tokens) for tokens in kept])
    columns.numbers(f"{name}_ids", [token for tokens in kept for token in tokens])
