"""What pictures and explorer have in common besides colours: limits, heights, the order of drawing, the legends.

Every name in capitals is also in the explorer's `constants.js` (see `explore.page.constants`).
"""

from __future__ import annotations

Entry = tuple[str, str]  # kind of mark, label

# ---- sequences ------------------------------------------------------------------------------------

DRAW_ORDER = ("waiting", "decode", "prefill", "hit", "preempted", "wasted", "finished")  # rare states last
HEIGHTS = dict.fromkeys(DRAW_ORDER, 1.0) | {"waiting": 0.2, "decode": 0.5, "wasted": 0.5}  # of a row
HIT_SHARE = 0.42  # of the first chunk's cell: a hit takes no time of its own
SEQUENCE_LEGEND: tuple[Entry, ...] = (
    ("waiting", "waiting"),
    ("hit", "prefix-cache hit"),
    ("prefill", "prefill chunk"),
    ("decode", "decode"),
    ("preempted", "preempted"),
    ("finished", "finished"),
)
WASTED_LEGEND: Entry = ("wasted", "wasted: it had ended")

# ---- blocks ---------------------------------------------------------------------------------------

BLOCK_KINDS = ("empty", "cached", "private", "shared")
BLOCK_LEGEND: tuple[Entry, ...] = (
    ("empty", "empty"),
    ("cached", "free but cached"),
    ("private", "private"),
    ("shared", "shared"),
    ("changed", "changed in this step"),
)
MOST_CELLS = 16_384  # above it a tile stands for several blocks
MOST_TILES = 4_096
MOST_OWNED = 1_024  # blocks that can be told apart by owner
GRID_COLUMNS = 8  # at least, and always a power of two, so that a block's number can be read off
GRID_FEW = 64  # cells: up to so many,
GRID_WIDTH = (4, 2)  # a grid is at least four times as wide as it is tall, else twice
