"""What each frame decided: tokens, why the loops ended, who was preempted, and the frames worth a visit."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nanoinfer.explore.changes import put_tuples
from nanoinfer.explore.columns import Columns
from nanoinfer.explore.frames import Frames
from nanoinfer.trace.explain import History, Line, explanation
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace


class _Peak(NamedTuple):
    """The fullest step of a frame: prefill and decode tokens, wasted ones, and how many steps into the frame it is."""

    prefill: int
    decode: int
    wasted: int
    offset: int


def put_decisions(columns: Columns, trace: Trace, frames: Frames, start: int, end: int) -> None:
    """Put the columns of frames `start` to `end - 1`."""
    groups = [trace.steps[frames.first_step(f) : frames.end_step(f)] for f in range(start, end)]
    put_tuples(columns, _Peak._fields, [_peak(group) for group in groups])
    _put_strings(columns, "phase", [group[-1].phase for group in groups])
    _put_strings(columns, "stop", [str(group[-1].stop) for group in groups])
    _put_strings(columns, "decode_stop", [str(group[-1].decode_stop) for group in groups])
    _put_preemptions(columns, groups)
    columns.json("marks", _marks(groups, start))
    told = _explanations(trace, frames, start, end)
    columns.json("sentences", ["\n".join(line.text for line in lines) for lines in told])
    columns.numbers("headline", [[line.kind for line in lines].index("headline") for lines in told])


def _peak(steps: list[Step]) -> _Peak:
    peaks = []
    for offset, step in enumerate(steps):
        decode = step.columns.chunk.count(None)  # a decode row computes exactly one token
        peaks.append(_Peak(step.num_batched_tokens - decode, decode, len(step.columns.wasted), offset))
    return max(peaks, key=lambda peak: peak.prefill + peak.decode)


def _put_strings(columns: Columns, name: str, strings: list[str]) -> None:
    """Put few different strings as numbers and a table."""
    table = list(dict.fromkeys(strings))
    index = {text: i for i, text in enumerate(table)}
    columns.numbers(name, [index[text] for text in strings])
    columns.json(f"{name}_table", table)


def _put_preemptions(columns: Columns, groups: list[list[Step]]) -> None:
    records = [[p for step in group for p in step.preempted] for group in groups]
    columns.numbers("preempted_count", list(map(len, records)))
    names = [f"preempted_{name}" for name in ("victim", "on_behalf_of", "blocks", "tokens", "self")]
    every = (p for group in records for p in group)
    put_tuples(columns, names, [(p.victim, p.on_behalf_of, p.blocks, p.tokens, int(p.rule == "self")) for p in every])


def _marks(groups: list[list[Step]], start: int) -> dict[str, list[int]]:
    """Frames to jump to, by what happens in them."""
    tests: dict[str, Callable[[Step], bool]] = {
        "preemption": lambda step: bool(step.preempted),
        "hit": has_hit,
        "refusal": lambda step: step.stop.refuses,
    }
    frames = list(enumerate(groups, start))
    return {name: [frame for frame, group in frames if any(map(test, group))] for name, test in tests.items()}


def has_hit(step: Step) -> bool:
    """Whether a prefill starts behind tokens that the prefix cache held."""
    c = step.columns
    return any(cached and chunk and chunk[0] == 1 for cached, chunk in zip(c.num_cached, c.chunk, strict=True))


def _explanations(trace: Trace, frames: Frames, start: int, end: int) -> list[list[Line]]:
    if frames.size > 1:
        return [_of_many(trace, frames, frame) for frame in range(start, end)]
    history = History(trace.events)
    return [explanation(trace, i, history) for i in range(start, end)]


def _of_many(trace: Trace, frames: Frames, frame: int) -> list[Line]:
    """A frame of several steps in words: sums, and its fullest step."""
    first, end = frames.first_step(frame), frames.end_step(frame)
    steps = trace.steps[first:end]
    peak = _peak(steps)
    budget = trace.config.max_num_batched_tokens
    full = f"Step {first + peak.offset} was the fullest: {peak.prefill + peak.decode} of {budget} budgeted tokens."
    preempted, hits = sum(len(step.preempted) for step in steps), sum(map(has_hit, steps))
    happened = f"Preemptions: {preempted}. Steps with a prefix hit: {hits}."
    told = [Line("headline", f"Steps {first} to {end - 1} as one frame."), Line("fullest", full)]
    return [*told, Line("happened", happened)] if preempted or hits else told
