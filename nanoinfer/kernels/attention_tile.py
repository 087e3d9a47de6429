"""What both attention kernels do with a tile of tokens: find its slots in the KV cache, and attend to them.

The softmax needs its scores only once, a tile at a time (Milakov and Gimelshein, 2018).
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = 1.4426950408889634  # for the callers' scale: powers of 2 are what a GPU computes


@triton.jit
def attend_to_tile(
    query: tl.tensor,
    key: tl.tensor,
    value: tl.tensor,
    visible: tl.tensor,
    scale: float,
    best: tl.tensor,
    total: tl.tensor,
    out: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """What attention has after one more tile of keys and values [TILE, HEAD_DIM].

    Args:
        query: [lines, HEAD_DIM], of the dtype of keys and values, in which products are taken.
        key: [TILE, HEAD_DIM]; what is not visible must be finite, 0 for instance.
        value: like key.
        visible: whether a line sees a token, [lines, TILE] or what broadcasts to it.
        scale: turns dot products into base-2 logarithms of weights.
        best: float32 [lines]: each line's largest score so far.
        total: float32 [lines]: the sum of its weights, relative to the best.
        out: float32 [lines, HEAD_DIM]: the sum of its weighted values, relative to the best.

    Returns:
        The new best, total and out.
    """
    scores = tl.dot(query, key.T, input_precision="ieee") * scale
    scores = tl.where(visible, scores, float("-inf"))
    new_best = tl.maximum(best, tl.max(scores, axis=1))
    shrink = tl.exp2(best - new_best)
    weights = tl.exp2(scores - new_best[:, None])
    out = tl.dot(weights.to(value.dtype), value, out * shrink[:, None], input_precision="ieee")
    return new_best, total * shrink + tl.sum(weights, axis=1), out


@triton.jit
def token_slots(
    table_ptr: tl.tensor, start: tl.tensor, end: tl.tensor, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr
) -> tl.tensor:
    """Physical slots, int64 [TILE], of tokens start .. start + TILE - 1, for a start that is a multiple of TILE.

    No entry of the block table past token end - 1 is read; the slots of those tokens mean nothing.
    """
    offsets = tl.arange(0, TILE)
    if BLOCK_SIZE % TILE == 0:  # the tile lies in one block
        block = tl.load(table_ptr + start // BLOCK_SIZE).to(tl.int64)
        slots = block * BLOCK_SIZE + start % BLOCK_SIZE + offsets
    else:
        tokens = start + offsets
        blocks = tl.load(table_ptr + tokens // BLOCK_SIZE, mask=tokens < end, other=0).to(tl.int64)
        slots = blocks * BLOCK_SIZE + tokens % BLOCK_SIZE
    return slots
