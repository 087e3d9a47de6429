"""Counts a hit only for the last block of a prefix, so that its first block goes first.

Hint: A hit counts for all blocks that were found, not for the last alone; then a prefix goes tail first.
"""

from __future__ import annotations

from nanoinfer import BlockManager, Sequence
from nanoinfer.core.block_manager import NO_HASH, Block


class Evictor(BlockManager):
    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.heat = [0.0] * num_blocks  # hits on what a block holds now; old ones count ever less

    def _take_hit(self, seq: Sequence, block: Block) -> None:
        for block_id in seq.block_table:
            self.heat[block_id] = 0
        self.heat[block.block_id] += 1
        super()._take_hit(seq, block)

    def _take_new(self, seq: Sequence) -> None:
        # min() gives the first of equals: among those, the block that was freed first, as before.
        coldest = min(self.free_block_ids, key=lambda i: (self.blocks[i].hash != NO_HASH, self.heat[i]))
        self.free_block_ids.move_to_end(coldest, last=False)
        super()._take_new(seq)
        self.heat = [heat / 2 for heat in self.heat]
        self.heat[coldest] = 0.0
