"""Keeps the counts on the class, so that all pools share them.

Hint: Keep the counts on the instance: two block managers must not count together.
"""

from __future__ import annotations

from nanoinfer import BlockManager, Sequence
from nanoinfer.core.block_manager import NO_HASH, Block


class Evictor(BlockManager):
    heat = [0.0] * 1000

    """A block manager that gives up first what is least likely to be asked for again.

    Two methods are the places to act: `_take_hit` is called for every block that a lookup found, `_take_new` takes one
    free block for new content. The base class forgets the old content of that block, counts it as used, and tells the
    recorder; call its methods, so that the trace still tells the truth.

    What must hold, whatever you choose:

    - Only a free block is taken, and as long as one is free, one is taken.
    - A free block that cannot be found (its `hash` is NO_HASH) goes before any that can.
    - Of blocks that were never hit, the one that was freed first goes, as in the base class.
    - Blocks leave the free list anywhere, but join it at its end, and nobody changes places: that is what the trace
      says. (Moving a block to the front just before it is taken is no change that anybody can see.)
    - New content is new: what was known of the old content of a block does not count for it.
    - What was popular long ago gives way at last to what is popular now.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)

    def _take_hit(self, seq: Sequence, block: Block) -> None:
        self.heat[block.block_id] += 1
        super()._take_hit(seq, block)

    def _take_new(self, seq: Sequence) -> None:
        # min() gives the first of equals: among those, the block that was freed first, as before.
        coldest = min(self.free_block_ids, key=lambda i: (self.blocks[i].hash != NO_HASH, self.heat[i]))
        self.free_block_ids.move_to_end(coldest, last=False)
        super()._take_new(seq)
        self.heat[:] = [heat / 2 for heat in self.heat]
        self.heat[coldest] = 0.0
