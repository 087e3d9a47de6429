"""The pool of KV blocks after a step: what is empty, cached, in use, shared, and just changed.

With a sequence selected also its block table: logical to physical blocks, their token ranges and how full they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanoinfer.trace.state import SchedulerState, events_of_step
from nanoinfer.trace.trace import Trace
from nanoinfer.viz.block_cells import ROOM_FOR_COUNT, Grid, Pool, draw_cells, draw_tiles
from nanoinfer.viz.canvas import add_rects, add_text, drawing, every, new_figure, text_width
from nanoinfer.viz.marks import legend, legend_height
from nanoinfer.viz.rules import (
    BLOCK_LEGEND,
    GRID_COLUMNS,
    GRID_FEW,
    GRID_WIDTH,
    MOST_CELLS,
    MOST_OWNED,
    MOST_TILES,
    Entry,
)
from nanoinfer.viz.theme import LABEL, MARGIN, PX, SMALL, WIDTH, Theme, get_theme

CHANGES = ("allocate", "reuse", "share", "release", "evict_hash")
MOST_ENTRIES = 48  # of a block table that are drawn; the last one always is
PER_LINE = 8
PITCH = (WIDTH - 2 * MARGIN) / PER_LINE  # inches from entry to entry
CHIP_WIDTH, CHIP_HEIGHT, LINE = PITCH - 0.08, 0.42, 0.5  # inches
HEADER = 0.32  # inches above the entries


def block_map(trace: Trace, i: int, theme: str = "light", select: int | None = None, by_owner: bool = False) -> Figure:
    """Draw the physical pool after step `i`.

    Args:
        trace: a recorded run.
        i: the step, from 0.
        theme: "light" or "dark".
        select: a sequence that holds blocks then; its blocks stand out and its block table is shown.
        by_owner: colour private blocks by the sequence that holds them (pools of up to 1,024 blocks).

    Raises:
        ValueError: an unknown theme, a `select` without blocks, or a pool too large for `by_owner`.
    """
    colors = get_theme(theme)
    pool = _pool(trace, i, select)
    n = len(pool.kinds)
    if by_owner and n > MOST_OWNED:
        raise ValueError(f"by_owner shows at most {MOST_OWNED} blocks, this pool has {n}; use select=<sequence id>")
    left = round(MARGIN + text_width(str(n), SMALL) + 0.08, 2)  # a whole pixel
    grid = _grid(n, WIDTH - left - MARGIN)
    entries = _legend_entries(grid, select, by_owner)
    top = round(0.6 + legend_height(entries), 2)
    table = None if select is None else pool.state.block_tables[select]
    height = round(top + grid.height + MARGIN + (0.15 + table_height(table) if table else 0), 2)
    figure = new_figure(colors, height, _title(pool, i))
    legend(figure, colors, 0.5, entries)
    axes = drawing(figure, left, top, WIDTH - left - MARGIN, grid.height)
    _label_rows(axes, colors, grid)
    if grid.per_cell > 1:
        draw_tiles(axes, colors, pool, grid)
    else:
        draw_cells(axes, colors, pool, grid, by_owner)
    if select is not None and table:
        draw_table(figure, colors, top + grid.height + 0.2, trace, i, select, pool.state)
    return figure


def _pool(trace: Trace, i: int, select: int | None) -> Pool:
    state = trace.state(i)
    if select is not None and select not in state.block_tables:
        holders = ", ".join(map(str, sorted(state.block_tables))) or "none"
        raise ValueError(f"sequence {select} holds no blocks after step {i}; those that do: {holders}")
    ref_counts = np.array(state.ref_counts)
    # A freed block that carries a hash can still be evicted from the index by its twin: then nothing finds it.
    findable = np.zeros(len(ref_counts), dtype=bool)
    findable[list(state.hash_index.values())] = True
    kinds = np.select([ref_counts > 1, ref_counts == 1, findable], ["shared", "private", "cached"], "empty")
    chosen, changed = np.zeros((2, len(ref_counts)), dtype=bool)
    if select is not None:
        chosen[state.block_tables[select]] = True
    for event in events_of_step(trace.events, i):
        if event.kind in CHANGES and event.block_id is not None:
            changed[event.block_id] = True
    return Pool(state, kinds, chosen, changed)


def _title(pool: Pool, i: int) -> str:
    shared, cached, empty = map(pool.count, ("shared", "cached", "empty"))
    used, n = pool.count("private") + shared, len(pool.kinds)
    return f"KV blocks after step {i}: {used} used, {shared} shared, {cached} free but cached, {empty} empty of {n}"


def _grid(blocks: int, width: float) -> Grid:
    """Columns as a power of two, so that a block's number can be read off, and a wide rather than tall grid."""
    per_cell = 1 if blocks <= MOST_CELLS else -(-blocks // MOST_TILES)
    cells = -(-blocks // per_cell)
    columns = GRID_COLUMNS
    while columns * columns < cells * GRID_WIDTH[cells > GRID_FEW]:
        columns *= 2
    cell = min(0.56, width / columns)
    if cell < ROOM_FOR_COUNT:  # on whole pixels, else rounding makes some gaps wider than others
        cell = int(cell / PX) * PX
    return Grid(cells, per_cell, columns, cell)


def _legend_entries(grid: Grid, select: int | None, by_owner: bool) -> list[Entry]:
    entries = [*BLOCK_LEGEND]
    entries[3] = ("shared", "shared, \u00d7 holders")  # a picture has no tooltip that says so
    if grid.per_cell > 1:
        entries.append(("", f"a tile is {grid.per_cell} blocks, filled from below by state"))
    if by_owner:
        entries[2] = ("", "coloured: private, with its sequence")
    if select is not None:
        entries.insert(4, ("selected", f"of sequence {select}"))
    return entries


def _label_rows(axes: Axes, theme: Theme, grid: Grid) -> None:
    """The first block's number at every row, or at as many rows as fit."""
    step = every(grid.cell, 0.14)
    for row in range(0, -(-grid.cells // grid.columns), step):
        first = row * grid.columns * grid.per_cell
        at = (-0.07, (row + 0.5) * grid.cell)
        add_text(axes, theme, at, str(first), size=SMALL, color=theme.muted, ha="right", va="center_baseline")


# ---- the block table of one sequence ------------------------------------------------------------


@dataclass(frozen=True)
class TableEntry:
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
    return HEADER + LINE * -(-min(len(table), MOST_ENTRIES) // PER_LINE)


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
        TableEntry(logical, block, state.ref_counts[block], min(max(known - logical * size, 0), size))
        for logical, block in enumerate(table)
    ]
    shown = entries if len(entries) <= MOST_ENTRIES else [*entries[: MOST_ENTRIES - 2], None, entries[-1]]
    for place, entry in enumerate(shown):
        x, y = place % PER_LINE * PITCH, HEADER + place // PER_LINE * LINE
        if entry is None:
            words = f"+{len(entries) - MOST_ENTRIES + 1} more"
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


def _draw_entry(axes: Axes, theme: Theme, entry: TableEntry, size: int, x: float, y: float) -> None:
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
