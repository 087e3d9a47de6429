"""The pool of KV blocks after a step: what is empty, cached, in use, shared, and just changed."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nanoinfer.trace.state import events_of_step
from nanoinfer.trace.trace import Trace
from nanoinfer.viz.block_cells import ROOM_FOR_COUNT, Grid, Pool, draw_cells, draw_tiles
from nanoinfer.viz.block_table import draw_table, table_height
from nanoinfer.viz.canvas import add_text, drawing, every, new_figure, text_width
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
from nanoinfer.viz.theme import MARGIN, PX, SMALL, WIDTH, Theme, get_theme

CHANGES = ("allocate", "reuse", "share", "release", "evict_hash")


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
