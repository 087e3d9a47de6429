"""Takes the block by itself and leaves its old hash in the index.

Hint: Call super()._take_new(seq): it forgets the old hash and tells the recorder.
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
        super()._take_hit(seq, block)

    def _take_new(self, seq: Sequence) -> None:
        # min() gives the first of equals: among those, the block that was freed first, as before.
        coldest = min(self.free_block_ids, key=lambda i: (self.blocks[i].hash != NO_HASH, self.heat[i]))
        del self.free_block_ids[coldest]
        self.blocks[coldest].ref_count = 1
        self.recorder.allocate(seq.seq_id, coldest)
        seq.block_table.append(coldest)
        self.heat = [heat / 2 for heat in self.heat]
        self.heat[coldest] = 0.0
