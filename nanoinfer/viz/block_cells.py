"""The cells of a block map: where they are, and how each state is drawn at every size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from nanoinfer.trace.state import SchedulerState
from nanoinfer.viz.canvas import add_rects, add_text
from nanoinfer.viz.marks import add_corners, add_dots, block_mark
from nanoinfer.viz.rules import BLOCK_KINDS
from nanoinfer.viz.theme import OWNERS, PX, SMALL, TINY, Theme, ink_on

ROOM_FOR_ID, ROOM_FOR_COUNT = 0.25, 0.11  # inches of a cell


@dataclass(frozen=True)
class Pool:
    """What is drawn: the state after a step, and the blocks to point out.

    Attributes:
        kinds: per block "empty", "cached", "private" or "shared".
        chosen, changed: masks over the blocks.
    """

    state: SchedulerState
    kinds: np.ndarray[Any, Any]
    chosen: np.ndarray[Any, Any]
    changed: np.ndarray[Any, Any]

    @cached_property
    def owners(self) -> dict[int, int]:
        """The holder of every block; for a shared block, one of them."""
        return {block: seq_id for seq_id, table in self.state.block_tables.items() for block in table}

    def count(self, kind: str) -> int:
        return int((self.kinds == kind).sum())


@dataclass(frozen=True)
class Grid:
    """Where the cells are: `columns` squares of `cell` inches to the row, each for `per_cell` blocks."""

    cells: int
    per_cell: int
    columns: int
    cell: float

    @property
    def height(self) -> float:
        return -(-self.cells // self.columns) * self.cell

    @property
    def gap(self) -> float:
        return 0.0 if self.cell < 5 * PX else PX / 2 if self.cell < ROOM_FOR_COUNT else 0.08 * self.cell

    def boxes(self, cells: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """(x, y, w, h) of the numbered cells."""
        side = np.full(len(cells), self.cell - self.gap)
        corner = self.gap / 2 if self.cell >= ROOM_FOR_COUNT else 0.0  # tiny cells stay on whole pixels
        x, y = cells % self.columns * self.cell + corner, cells // self.columns * self.cell + corner
        return np.column_stack([x, y, side, side])


def draw_cells(axes: Axes, theme: Theme, pool: Pool, grid: Grid, by_owner: bool) -> None:
    """One square per block."""
    fills = _fills(theme, pool, by_owner)
    for kind in BLOCK_KINDS:
        blocks = np.flatnonzero(pool.kinds == kind)
        style = block_mark(theme, kind).style | {"facecolors": [fills[block] for block in blocks]}
        if grid.cell < ROOM_FOR_COUNT:
            style["snap"] = False  # rounding half-pixel gaps would drop some and double others
        if "linewidths" in style:
            style["linewidths"] = min(style["linewidths"], 8 * grid.cell)  # at most a ninth of a tiny cell
        add_rects(axes, grid.boxes(blocks), f"block-{kind}", zorder=3 if kind == "shared" else 2, **style)
        if kind == "cached":
            add_dots(axes, theme, _mark_boxes(grid.boxes(blocks), grid), "block-dot")
    if pool.chosen.any():
        _draw_chosen(axes, theme, pool, grid)
    if grid.cell >= ROOM_FOR_COUNT:
        _write(axes, theme, pool, grid, fills, by_owner)
    _draw_changed(axes, theme, pool, grid, fills)


def _draw_chosen(axes: Axes, theme: Theme, pool: Pool, grid: Grid) -> None:
    """What tells the selected sequence's blocks without colour; its shared ones have their frame inside the fill."""
    chosen = grid.boxes(np.flatnonzero(pool.chosen))
    add_rects(axes, chosen, "block-selected", fc="none", zorder=2)
    add_corners(axes, theme, chosen, "block-corner")
    inner = np.array([0.06, 0.06, -0.12, -0.12]) * (grid.cell - grid.gap)
    frames = grid.boxes(np.flatnonzero(pool.chosen & (pool.kinds == "shared"))) + inner
    line = {"ec": ink_on(theme.selected), "linewidths": min(1.1, 8 * grid.cell)}
    add_rects(axes, frames, "block-selected-shared", fc="none", zorder=4, **line)


def _fills(theme: Theme, pool: Pool, by_owner: bool) -> list[str]:
    """The fill of every block; with a selection, the blocks of all others turn grey."""
    plain: dict[str, str] = {kind: block_mark(theme, kind).style["facecolors"] for kind in BLOCK_KINDS}
    fills = [plain[kind] for kind in pool.kinds]
    for block in np.flatnonzero(pool.kinds == "private") if by_owner else ():
        fills[block] = OWNERS[pool.owners[int(block)] % len(OWNERS)]
    if pool.chosen.any():
        for block in np.flatnonzero(np.isin(pool.kinds, ("private", "shared"))):
            fills[block] = theme.selected if pool.chosen[block] else theme.private
    return fills


def _mark_boxes(boxes: np.ndarray[Any, Any], grid: Grid) -> np.ndarray[Any, Any]:
    """Where the sign of a state goes: below the block's number if that is written, else all of the cell."""
    if grid.cell < ROOM_FOR_ID:
        return boxes
    shift = np.array([0.0, 0.4, 0.0, -0.4]) * grid.cell
    result: np.ndarray[Any, Any] = boxes + shift
    return result


def _write(axes: Axes, theme: Theme, pool: Pool, grid: Grid, fills: list[str], by_owner: bool) -> None:
    """Numbers, holders' counts and owners, in whichever cells have room."""
    roomy = grid.cell >= ROOM_FOR_ID
    large = grid.cell >= 0.4
    for block, (x, y, w, h) in enumerate(grid.boxes(np.arange(grid.cells))):
        ink = ink_on(fills[block])
        sign = ""
        if pool.kinds[block] == "shared":
            sign = f"\u00d7{pool.state.ref_counts[block]}" if roomy else str(pool.state.ref_counts[block])
        elif by_owner and roomy and pool.kinds[block] == "private":
            sign = f"s{pool.owners[block]}"
        middle: dict[str, Any] = {"ha": "center", "va": "center_baseline", "color": ink, "zorder": 5}
        if roomy:
            size = SMALL if large else TINY - 0.5
            at = (x + w / 2, y + h * (0.35 if sign or pool.kinds[block] == "cached" else 0.5))
            add_text(axes, theme, at, str(block), size=size, gid="block-id", **middle)
        if sign:
            at = (x + w / 2, y + h * (0.68 if roomy else 0.5))
            add_text(axes, theme, at, sign, size=SMALL if large else TINY, weight="bold", gid="block-sign", **middle)


def draw_tiles(axes: Axes, theme: Theme, pool: Pool, grid: Grid) -> None:
    """One tile for several blocks, filled from below in proportion to their states."""
    tile_of = np.arange(len(pool.kinds)) // grid.per_cell
    size = np.bincount(tile_of)
    boxes = grid.boxes(np.arange(grid.cells))
    add_rects(axes, boxes, "tile-empty", zorder=1, snap=False, **block_mark(theme, "empty").style)
    floor = boxes[:, 1] + boxes[:, 3]  # y grows downwards
    for kind in ("selected", "shared", "private", "cached"):
        mask = pool.chosen if kind == "selected" else (pool.kinds == kind) & ~pool.chosen
        share = np.bincount(tile_of[mask], minlength=grid.cells) / size
        height = share * boxes[:, 3]
        floor = floor - height
        rects = np.column_stack([boxes[:, 0], floor, boxes[:, 2], height])[share > 0]
        add_rects(axes, rects, f"tile-{kind}", fc=block_mark(theme, kind).style["facecolors"], zorder=2, snap=False)
    _draw_changed(axes, theme, pool, grid, None)


def _draw_changed(axes: Axes, theme: Theme, pool: Pool, grid: Grid, fills: list[str] | None) -> None:
    """A dashed outline in every cell in which a block changed hands in this step.

    `fills` are the colours below, for an outline that stands off; None where a cell mixes several.
    """
    cells = np.unique(np.flatnonzero(pool.changed) // grid.per_cell)
    style = block_mark(theme, "changed").style
    style["linewidths"] = min(style["linewidths"], 12 * grid.cell)
    boxes = grid.boxes(cells)
    if fills and grid.cell >= ROOM_FOR_ID:  # inside, away from a shared block's border and from the neighbours
        style["edgecolors"] = [ink_on(fills[cell]) for cell in cells]
        boxes = boxes + np.array([1, 1, -2, -2]) * 0.07 * grid.cell
    add_rects(axes, boxes, "block-changed", zorder=4, **style)
