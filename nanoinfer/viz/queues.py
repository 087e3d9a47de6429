"""Waiting and running before and after a step: who entered, who left, and why it stopped there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanoinfer.trace.events import Event, endings
from nanoinfer.trace.state import events_of_step
from nanoinfer.trace.trace import Trace
from nanoinfer.trace.words import counted, listed
from nanoinfer.viz.canvas import Rect, add_rects, add_text, drawing, new_figure, text_width
from nanoinfer.viz.theme import LABEL, MARGIN, PX, WIDTH, Theme, get_theme

MOST = 48  # ids drawn per queue
LABEL_WIDTH = 1.3  # inches
CHIP_HEIGHT, CHIP_GAP, LINE = 0.22, 0.06, 0.29  # inches
KEY_HEIGHT, NOTE_LINE = 0.42, 0.24  # inches
GROUP_GAP, PAIR_GAP = 0.18, 0.07  # between the queues, and between before and after, inches
ROOM = WIDTH - 2 * MARGIN - LABEL_WIDTH

Chip = tuple[float, int, int, float]  # left edge in inches, line, id, width in inches


@dataclass(frozen=True)
class _Queue:
    """One row of the picture; `changed` are the ids to mark as having entered it, or as leaving it."""

    label: str
    gid: str
    ids: list[int]
    changed: set[int]
    leaving: bool


def queues(trace: Trace, i: int, theme: str = "light") -> Figure:
    """Draw both queues as `schedule()` found them in step `i` and as the step left them.

    What arrived for the step is already in the upper row. Whoever leaves is struck through in the row
    before, whoever enters is outlined in the row after.

    Args:
        trace: a recorded run.
        i: the step, from 0.
        theme: "light" or "dark".

    Raises:
        ValueError: an unknown theme.
    """
    colors = get_theme(theme)
    step, events = trace.steps[i], events_of_step(trace.events, i)
    rows = _rows(trace, i, events)
    notes = [f"Admission stopped: {step.stop}", f"Decode loop stopped: {step.decode_stop}", *_moves(trace, i, events)]
    placed = [_place_chips(row) for row in rows]
    body = sum(map(_height, rows, placed)) + GROUP_GAP + 3 * PAIR_GAP
    width = _figure_width(placed, notes)
    height = 0.5 + KEY_HEIGHT + body + 0.12 + NOTE_LINE * len(notes) + 0.12
    figure = new_figure(colors, height, f"Queues before and after step {i}", width)
    axes = drawing(figure, MARGIN, 0.5, width - 2 * MARGIN, height - 0.5)
    _draw_key(axes, colors)
    y = KEY_HEIGHT
    for row, chips in zip(rows, placed, strict=True):
        _draw_queue(axes, colors, row, chips, y)
        y += _height(row, chips) + (GROUP_GAP if row.gid == "waiting-after" else PAIR_GAP)
    for number, note in enumerate(notes):
        middle = y + 0.12 + NOTE_LINE * (number + 0.5)
        add_text(axes, colors, (0, middle), note, weight="bold" if number == 0 else "normal")
    return figure


def _figure_width(placed: Sequence[Sequence[Chip]], notes: Sequence[str]) -> float:
    """As wide as the longest line, between a third of a page and a page."""
    chips = [LABEL_WIDTH + x + width for row in placed for x, _, _, width in row]
    return min(WIDTH, max(6.5, 2 * MARGIN + max([*chips, *(text_width(note, LABEL, "bold") for note in notes)])))


def _draw_key(axes: Axes, theme: Theme) -> None:
    """How entering and leaving look, by example."""
    x, y, size = 0.0, 0.02, (0.24, 0.17)
    for gid, word in (("entered", "enters"), ("left", "leaves")):
        add_rects(axes, [(x, y, *size)], "key", fc=theme.surface, ec=theme.hairline, linewidths=0.6)
        _mark(axes, theme, [(x, y, *size)], f"key-{gid}", gid == "left")
        add_text(axes, theme, (x + 0.31, y + 0.085), word, color=theme.muted)
        x += 0.31 + text_width(word, LABEL) + 0.25
    add_text(axes, theme, (x, y + 0.085), "the front of a queue is at the left", color=theme.muted)


def _rows(trace: Trace, i: int, events: Sequence[Event]) -> list[_Queue]:
    before = trace.state(i - 1) if i else trace.header.initial
    arrived = [event.seq_id for event in events if event.kind == "arrive" and event.seq_id is not None]
    waiting, running = [*before.waiting, *arrived], list(before.running)
    after = trace.state(i)
    return [
        _Queue("waiting before", "waiting-before", waiting, set(waiting) - set(after.waiting), True),
        _Queue("waiting after", "waiting-after", after.waiting, set(after.waiting) - set(waiting), False),
        _Queue("running before", "running-before", running, set(running) - set(after.running), True),
        _Queue("running after", "running-after", after.running, set(after.running) - set(running), False),
    ]


def _moves(trace: Trace, i: int, events: Sequence[Event]) -> list[str]:
    """Who moved, one line per kind of move."""
    left = [ending for ending in endings(events) if not ending.corrects]
    moved = {
        "Arrived": [str(event.seq_id) for event in events if event.kind == "arrive"],
        "Admitted": [str(event.seq_id) for event in events if event.kind == "run"],
        "Finished": [f"{ending.seq_id} ({ending.reason})" for ending in left if not ending.aborted],
        "Aborted": [str(ending.seq_id) for ending in left if ending.aborted],
    }
    lines = [f"{word}: {listed(names, 16)}" for word, names in moved.items() if names]
    victims = [
        f"{p.victim} for {'itself' if p.rule == 'self' else p.on_behalf_of} "
        f"({counted(p.blocks, 'block')} back, {counted(p.tokens, 'token')} lost)"
        for p in trace.steps[i].preempted
    ]
    return [*lines, f"Preempted: {listed(victims, 4)}"] if victims else lines


def _place_chips(row: _Queue) -> list[Chip]:
    """The first ids of a queue, wrapped; all chips of a queue have one width."""
    ids = row.ids[:MOST]
    width = max((text_width(str(i), LABEL) for i in ids), default=0) + 0.16
    per_line = int((ROOM + CHIP_GAP) / (width + CHIP_GAP))
    return [(n % per_line * (width + CHIP_GAP), n // per_line, i, width) for n, i in enumerate(ids)]


def _height(row: _Queue, chips: list[Chip]) -> float:
    """Inches of a queue: its lines of chips, and one for the number of those not drawn."""
    return LINE * ((chips[-1][1] + 1 if chips else 1) + (len(row.ids) > MOST))


def _draw_queue(axes: Axes, theme: Theme, row: _Queue, chips: list[Chip], top: float) -> None:
    middle = top + CHIP_HEIGHT / 2
    add_text(axes, theme, (0, middle), row.label, color=theme.muted)
    if not chips:
        add_text(axes, theme, (LABEL_WIDTH, middle), "empty", color=theme.muted, style="italic")
    boxes = {i: (LABEL_WIDTH + x, top + line * LINE, width, CHIP_HEIGHT) for x, line, i, width in chips}
    add_rects(axes, list(boxes.values()), row.gid, fc=theme.surface, ec=theme.hairline, linewidths=0.6)
    for i, (x, y, width, height) in boxes.items():
        add_text(axes, theme, (x + width / 2, y + height / 2), str(i), ha="center", va="center_baseline")
    marked = [box for i, box in boxes.items() if i in row.changed]
    _mark(axes, theme, marked, f"{row.gid}-{'left' if row.leaving else 'entered'}", row.leaving)
    hidden = row.ids[MOST:]
    if hidden:
        below = top + LINE * (chips[-1][1] + 1) + CHIP_HEIGHT / 2
        changed = sum(i in row.changed for i in hidden)
        verb = "leaves" if row.leaving and changed == 1 else "leave" if row.leaving else "entered"
        more = f"+{len(hidden)}" + (f" ({changed} of them {verb})" if changed else "")
        add_text(axes, theme, (LABEL_WIDTH, below), more, color=theme.muted)


def _mark(axes: Axes, theme: Theme, boxes: Sequence[Rect], gid: str, leaving: bool) -> None:
    """Strike `boxes` through, or outline them."""
    if leaving:
        strikes = [(x + 0.03, y + h / 2 - 0.7 * PX, w - 0.06, 1.4 * PX) for x, y, w, h in boxes]
        add_rects(axes, strikes, gid, fc=theme.ink, zorder=4)
    else:
        add_rects(axes, boxes, gid, fc="none", ec=theme.ink, linewidths=1.5, zorder=4)
