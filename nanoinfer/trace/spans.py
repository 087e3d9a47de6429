"""Who did what from when to when: a trace as one list of spans per sequence.

Pictures and the explorer draw these spans. They come from one pass over the events and the columns
of the steps; nothing is folded. This file knows neither matplotlib nor torch.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from nanoinfer.trace.events import Ending, Event, endings
from nanoinfer.trace.state import Unread
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace

# In the order in which spans that begin together are listed.
KINDS = ("waiting", "preempted", "hit", "prefill", "decode", "finished", "wasted")
MOVES = frozenset({"arrive", "preempt", "finish", "abort"})  # kinds of events that begin or end a span


class Span(NamedTuple):
    """One sequence in one state during steps `start` to `end - 1`.

    Attributes:
        kind: one of KINDS.
            "waiting": queued and never computed; "preempted": from the step that took its blocks to the
            step before its recompute. "prefill": one chunk, always one step. "hit": the prefix-cache hit of
            that chunk. "decode": an unbroken run of decode steps. "finished": the step of its last token; after
            an abort, the last step it was queued in. "wasted": the row of an overlapped step that was launched before
            it was known that the sequence had ended.
        start, end: steps; `end` is the first step that no longer belongs to it.
        tokens: computed in this span ("hit": found in the cache; 0 where nothing is computed).

    A live sequence without a span at some step was running, but not in that step's batch.
    """

    seq_id: int
    kind: str
    start: int
    end: int
    tokens: int


def sequence_spans(trace: Trace) -> list[Span]:
    """All spans of `trace`, by sequence id and then by time."""
    builder, unread, steps = _Builder(trace), Unread(trace), len(trace.steps)
    for i, step in enumerate(trace.steps):
        events = [event for event in unread.up_to(i) if event.kind in MOVES]
        for event in events:
            builder.queue_event(event, i)
        builder.rows(step, i)
        for ending in endings(events):
            builder.end(ending, i)
    for ending in endings(unread.up_to(steps + 1)):  # between the last recorded step and the end of the recording
        if not ending.by_length:
            builder.end(ending, steps)
    return builder.close(steps)


class _Builder:
    """The state of the pass: idle since when, and the decode run being extended, per sequence."""

    def __init__(self, trace: Trace) -> None:
        self.spans: defaultdict[int, list[Span]] = defaultdict(list)
        self.idle: dict[int, tuple[str, int]] = dict.fromkeys(trace.header.initial.waiting, ("waiting", 0))
        self.decoding: dict[int, list[int]] = {}  # first step, first step after the run
        self.last_token: dict[int, int] = {}  # step that sampled it
        # Whoever is computed for the first time since it was admitted may have been helped by the prefix
        # cache; a warm engine's sequences that already hold blocks were helped before the recording.
        self.has_blocks = set(trace.header.initial.block_tables)

    def queue_event(self, event: Event, i: int) -> None:
        """Takes in an event of step `i`."""
        if event.kind == "arrive" and event.seq_id is not None:
            self._begin_idle(event.seq_id, "waiting", i)
        elif event.kind == "preempt" and event.seq_id is not None:
            self._close_idle(event.seq_id, i)
            self._begin_idle(event.seq_id, "preempted", i)

    def _begin_idle(self, seq_id: int, kind: str, i: int) -> None:
        self.idle[seq_id] = (kind, i)
        self.has_blocks.discard(seq_id)

    def rows(self, step: Step, i: int) -> None:
        c = step.columns
        rows = zip(c.seq_id, c.num_cached, c.num_scheduled, c.token_id, c.chunk, strict=True)
        for seq_id, cached, tokens, token_id, chunk in rows:
            if token_id is not None:
                self.last_token[seq_id] = i
            if chunk is not None:
                self._prefill(seq_id, i, cached, tokens)
            elif token_id is not None:
                self._decode(seq_id, i)
            else:
                self.spans[seq_id].append(Span(seq_id, "wasted", i, i + 1, tokens))

    def _decode(self, seq_id: int, i: int) -> None:
        run = self.decoding.get(seq_id)
        if run and run[1] == i:
            run[1] = i + 1
        else:
            self._close_run(seq_id)
            self.decoding[seq_id] = [i, i + 1]

    def _prefill(self, seq_id: int, i: int, cached: int, tokens: int) -> None:
        self._close_idle(seq_id, i)
        self._close_run(seq_id)
        if seq_id not in self.has_blocks:
            self.has_blocks.add(seq_id)
            if cached:
                self.spans[seq_id].append(Span(seq_id, "hit", i, i + 1, cached))
        self.spans[seq_id].append(Span(seq_id, "prefill", i, i + 1, tokens))

    def _close_idle(self, seq_id: int, i: int) -> None:
        kind, since = self.idle.pop(seq_id, ("waiting", i))
        if since < i:
            self.spans[seq_id].append(Span(seq_id, kind, since, i, 0))

    def _close_run(self, seq_id: int) -> None:
        run = self.decoding.pop(seq_id, None)
        if run:
            self.spans[seq_id].append(Span(seq_id, "decode", run[0], run[1], run[1] - run[0]))

    def end(self, ending: Ending, i: int) -> None:
        """The sequence left in step `i`: after its last token, or aborted before the step or while it ran."""
        if ending.corrects:
            return
        seq_id = ending.seq_id
        self._close_idle(seq_id, i)
        self._close_run(seq_id)
        spans = self.spans[seq_id]
        if not spans:  # came and was aborted between two steps: no step ever saw it
            return
        last = i if spans[-1].end > i else i - 1
        if not ending.aborted:
            last = self.last_token.get(seq_id, i)
        spans.append(Span(seq_id, "finished", last, last + 1, 0))

    def close(self, steps: int) -> list[Span]:
        """Ends what is still going on after the last step, and sorts."""
        for seq_id in list(self.idle):
            self._close_idle(seq_id, steps)
        for seq_id in list(self.decoding):
            self._close_run(seq_id)
        every = [span for spans in self.spans.values() for span in spans]
        return sorted(every, key=lambda span: (span.seq_id, span.start, KINDS.index(span.kind)))
