"""Where the tokens of a sequence lie in the KV cache, looked up inside the attention kernels."""

from __future__ import annotations

import triton
import triton.language as tl


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
