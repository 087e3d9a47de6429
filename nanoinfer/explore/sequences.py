"""Who was served: each request's prompt and output, as text where the trace has it and as token ids."""

from __future__ import annotations

from collections.abc import Iterable

from nanoinfer.explore.columns import Columns
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace

MOST_IDS = 200_000  # of all prompts, and again of all outputs: beyond it every sequence keeps its first ones
MOST_TEXT = 2_000_000  # characters of all texts


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
