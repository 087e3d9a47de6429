"""One sequence's block table: logical to physical blocks, their token ranges and how full they are."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanoinfer.trace.state import SchedulerState
from nanoinfer.trace.trace import Trace
from nanoinfer.viz.canvas import add_rects, add_text, drawing
from nanoinfer.viz.theme import LABEL, MARGIN, SMALL, WIDTH, Theme

MOST = 48  # entries shown; the last one always is
PER_LINE = 8
PITCH = (WIDTH - 2 * MARGIN) / PER_LINE  # inches from entry to entry
CHIP_WIDTH, CHIP_HEIGHT, LINE = PITCH - 0.08, 0.42, 0.5  # inches
HEADER = 0.32  # inches


@dataclass(frozen=True)
class Entry:
    """Logical block `logical` lies in `physical`, held by `holders` sequences; `written` of its slots are filled."""

    logical: int
    physical: int
    holders: int
    written: int


def tokens_in_kv(trace: Trace, i: int, seq_id: int) -> int | None:
    """Tokens of `seq_id` whose KV is in the cache after step `i`; None where no recorded step tells."""
    for step in reversed(trace.steps[: i + 1]):
        if seq_id in step.columns.seq_id:
            row = step.columns.seq_id.index(seq_id)
            return step.columns.num_computed[row] + step.columns.num_scheduled[row]
    for step in trace.steps[i + 1 :]:  # it was computed before the recording began
        if seq_id in step.columns.seq_id:
            return step.columns.num_computed[step.columns.seq_id.index(seq_id)]
    return None


def table_height(table: list[int]) -> float:
    """Inches that `draw_table` takes."""
    return HEADER + LINE * -(-min(len(table), MOST) // PER_LINE)


def draw_table(
    figure: Figure, theme: Theme, top: float, trace: Trace, i: int, seq_id: int, state: SchedulerState
) -> None:
    """The table of `seq_id`, a box per logical block, `top` inches from the top of the figure."""
    table, size = state.block_tables[seq_id], trace.config.kvcache_block_size
    tokens = tokens_in_kv(trace, i, seq_id)
    axes = drawing(figure, MARGIN, top, WIDTH - 2 * MARGIN, table_height(table))
    add_text(axes, theme, (0, 0.1), _headline(seq_id, len(table), tokens, size), weight="bold")
    known = len(table) * size if tokens is None else tokens
    entries = [
        Entry(logical, block, state.ref_counts[block], min(max(known - logical * size, 0), size))
        for logical, block in enumerate(table)
    ]
    shown = entries if len(entries) <= MOST else [*entries[: MOST - 2], None, entries[-1]]
    for place, entry in enumerate(shown):
        x, y = place % PER_LINE * PITCH, HEADER + place // PER_LINE * LINE
        if entry is None:
            words = f"+{len(entries) - MOST + 1} more"
            add_text(axes, theme, (x + CHIP_WIDTH / 2, y + CHIP_HEIGHT / 2), words, color=theme.muted, ha="center")
        else:
            _draw_entry(axes, theme, entry, size, x, y)


def _headline(seq_id: int, blocks: int, tokens: int | None, size: int) -> str:
    head = f"Block table of sequence {seq_id}, logical \u2192 physical: {blocks} blocks of {size} slots"
    if tokens is None:
        return head
    last = tokens - (blocks - 1) * size
    if last <= 0:
        return f"{head}, {tokens} tokens written, the last block is reserved"
    return f"{head}, {tokens} tokens written, {last} of {size} slots in the last block"


def _draw_entry(axes: Axes, theme: Theme, entry: Entry, size: int, x: float, y: float) -> None:
    """A box with a gauge along its foot: the share of the block's slots that are written."""
    first = entry.logical * size
    tokens = f"tokens {first}\u2013{first + entry.written - 1}" if entry.written > 1 else f"token {first}"
    holders = f" \u00d7{entry.holders}" if entry.holders > 1 else ""
    line = {"ec": theme.ink, "linewidths": 1.4} if entry.holders > 1 else {"ec": theme.hairline, "linewidths": 0.6}
    add_rects(axes, [(x, y, CHIP_WIDTH, CHIP_HEIGHT)], "table-entry", fc=theme.surface, **line)
    gauge = (x, y + CHIP_HEIGHT - 0.05, CHIP_WIDTH * entry.written / size, 0.05)
    add_rects(axes, [gauge], "table-fill", fc=theme.selected)
    name = f"{entry.logical} \u2192 {entry.physical}{holders}"
    add_text(axes, theme, (x + 0.06, y + 0.115), name, size=LABEL, va="center_baseline", gid="table-text")
    words = tokens if entry.written else "reserved"
    add_text(axes, theme, (x + 0.06, y + 0.265), words, size=SMALL, color=theme.muted, va="center_baseline")
