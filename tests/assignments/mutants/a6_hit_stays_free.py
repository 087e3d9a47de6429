"""Adds a hit to the table by itself, and leaves the block in the free list.

Hint: Call super()._take_hit(seq, block): it takes the block out of the free list and counts who holds it.
"""

from __future__ import annotations

from nanoinfer import BlockManager, Sequence
from nanoinfer.core.block_manager import NO_HASH, Block


class Evictor(BlockManager):
    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.heat = [0.0] * num_blocks  # hits on what a block holds now; old ones count ever less

    def _take_hit(self, seq: Sequence, block: Block) -> None:
        self.heat[block.block_id] += 1
        block.ref_count += 1
        seq.block_table.append(block.block_id)

    def _take_new(self, seq: Sequence) -> None:
        # min() gives the first of equals: among those, the block that was freed first, as before.
        coldest = min(self.free_block_ids, key=lambda i: (self.blocks[i].hash != NO_HASH, self.heat[i]))
        self.free_block_ids.move_to_end(coldest, last=False)
        super()._take_new(seq)
        self.heat = [heat / 2 for heat in self.heat]
        self.heat[coldest] = 0.0
