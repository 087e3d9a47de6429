"""Assignment 2: a block manager with reference counts and prefix hashes.

Write the methods of `BlockManager`. Keep the names of its attributes: the scheduler, the tests and the explorer read
them. You need not record anything. Helpers of your own are welcome.
"""

import struct
from collections import deque
from collections.abc import Sequence as Tokens

import xxhash

from nanoinfer import Sequence

NO_HASH = -1


class Block:
    """One physical block.

    Attributes:
        ref_count: how many block tables hold it.
        hash: the hash it was registered under, NO_HASH if it was not, or is forgotten. Of twins, blocks with equal
            tokens from the first on, only the one registered last is found. The others may keep their hash: nobody
            looks at it, as they are in `hash_to_block_id` no more.
        prefix: if it has a hash, all tokens up to its end: its own and those of the blocks before it.
    """

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.hash = NO_HASH
        self.prefix: list[int] = []


class BlockManager:
    """Hands blocks to sequences, shares those with equal prefixes, and takes them back.

    Attributes:
        blocks: all of them, by id.
        free_block_ids: the free list: taken from the front, given back to the end.
        hash_to_block_id: which block is found under a hash.
        enable_prefix_caching: if False, nothing is registered and nothing is found.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.blocks = [Block(block_id) for block_id in range(num_blocks)]
        self.free_block_ids = deque(range(num_blocks))
        self.hash_to_block_id: dict[int, int] = {}
        self.enable_prefix_caching = True

    # ---- part 1: blocks and reference counts ----

    def allocate(self, seq: Sequence, num_cached_blocks: int) -> None:
        """Fill `seq.block_table` with blocks for all tokens of `seq`: first `num_cached_blocks` hits, then new blocks.

        A hit is shared: its reference count goes up, and it leaves the free list if it lies there. A new block is the
        first of the free list; what it held before can no longer be found. Sets `seq.num_cached_tokens` and
        `seq.num_computed_tokens` to the tokens found.

        `num_cached_blocks` is what `can_allocate` has just answered, and `seq` holds no block.

        Raises:
            RuntimeError: there are not enough free blocks; then nothing has changed.
        """
        # BEGIN SOLUTION
        hits = self._hits(seq)[:num_cached_blocks]
        if self.num_needed_blocks(seq) > len(self.free_block_ids):
            raise RuntimeError(f"sequence {seq.seq_id} needs more blocks than the {len(self.free_block_ids)} free ones")
        for block in hits:
            if block.ref_count == 0:
                self.free_block_ids.remove(block.block_id)
            block.ref_count += 1
            seq.block_table.append(block.block_id)
        for _ in range(seq.num_blocks - len(hits)):
            self._take_new(seq)
        seq.num_cached_tokens = seq.num_computed_tokens = len(hits) * self.block_size
        # END SOLUTION

    def deallocate(self, seq: Sequence) -> None:
        """Give up all blocks of `seq`, the last one first; a block that nobody holds goes to the end of the free list.

        A freed block keeps its hash: it can be found until it is taken for something else. Sets `seq.block_table` to a
        new empty list, `seq.num_cached_tokens` and `seq.num_computed_tokens` to 0. A second call changes nothing.
        """
        # BEGIN SOLUTION
        for block_id in reversed(seq.block_table):
            block = self.blocks[block_id]
            block.ref_count -= 1
            if block.ref_count == 0:
                self.free_block_ids.append(block_id)
        seq.block_table = []
        seq.num_cached_tokens = seq.num_computed_tokens = 0
        # END SOLUTION

    # ---- part 2: growing ----

    def can_append(self, seq: Sequence) -> bool:
        """Whether the newest token of `seq` has a place: a slot in its last block, or a free block.

        The newest token is already in `seq.token_ids`. Changes nothing.
        """
        # BEGIN SOLUTION
        return not self._needs_block(seq) or len(self.free_block_ids) > 0
        # END SOLUTION

    def may_append(self, seq: Sequence) -> None:
        """Give `seq` one more block if its newest token has no slot. Callers ask `can_append` first."""
        # BEGIN SOLUTION
        if self._needs_block(seq):
            self._take_new(seq)
        # END SOLUTION

    # ---- part 3: the prefix cache ----

    def compute_hash(self, token_ids: Tokens[int], prefix: int = NO_HASH) -> int:
        """A number from 0 to 2**64 - 1 for the tokens of one block and the hash of the block before it.

        Equal for equal tokens in every process, and for a list and a numpy array. Token ids are 0 or more; `prefix` is
        NO_HASH for the first block. Call it as `self.compute_hash(token_ids, prefix)`: the tests put another one with
        this signature in its place.
        """
        # BEGIN SOLUTION
        data = struct.pack(f"<{len(token_ids)}q", *token_ids)
        if prefix != NO_HASH:
            data = prefix.to_bytes(8, "little") + data
        return xxhash.xxh64_intdigest(data)
        # END SOLUTION

    def hash_blocks(self, seq: Sequence) -> None:
        """Make the blocks findable that the step just run has filled.

        The step has computed `seq.num_scheduled_tokens` tokens after the first `seq.num_computed_tokens`. Only full
        blocks count. Under one hash the block that was registered last is found.

        Chain the hashes by the tokens of `seq`, or by what you have kept in `seq.block_hashes`. The block before may
        have no hash any more: after `reset_prefix_cache` its tokens are still there.
        """
        # BEGIN SOLUTION
        if not self.enable_prefix_caching:
            return
        first = seq.num_computed_tokens // self.block_size
        end = (seq.num_computed_tokens + seq.num_scheduled_tokens) // self.block_size
        for i in range(first, end):
            block = self.blocks[seq.block_table[i]]
            block.hash = self._hash_of(seq, i)
            block.prefix = seq.token_ids[: (i + 1) * self.block_size]
            self.hash_to_block_id[block.hash] = block.block_id
        # END SOLUTION

    def can_allocate(self, seq: Sequence) -> int:
        """How many blocks of `seq` the prefix cache holds, or -1 if the free list is too short. Changes nothing.

        Hits are counted from the first block on and end at the first miss. A hit needs equal tokens from the first on,
        not only an equal hash. The block with the last token never counts, so that at least one token is computed.
        """
        # BEGIN SOLUTION
        return len(self._hits(seq)) if self.num_needed_blocks(seq) <= len(self.free_block_ids) else -1
        # END SOLUTION

    def num_needed_blocks(self, seq: Sequence) -> int:
        """How many blocks `allocate` takes from the free list: the new ones, and the hits that lie there."""
        # BEGIN SOLUTION
        return seq.num_blocks - sum(block.ref_count > 0 for block in self._hits(seq))
        # END SOLUTION

    def reset_prefix_cache(self) -> None:
        """Nothing can be found any more. Blocks in use stay with their sequences."""
        # BEGIN SOLUTION
        for block in self.blocks:
            self._forget(block)
        # END SOLUTION

    # BEGIN SOLUTION
    def _needs_block(self, seq: Sequence) -> bool:
        return len(seq) > len(seq.block_table) * self.block_size

    def _take_new(self, seq: Sequence) -> None:
        block = self.blocks[self.free_block_ids.popleft()]
        self._forget(block)
        block.ref_count = 1
        seq.block_table.append(block.block_id)

    def _forget(self, block: Block) -> None:
        if self.hash_to_block_id.get(block.hash) == block.block_id:
            del self.hash_to_block_id[block.hash]
        block.hash, block.prefix = NO_HASH, []

    def _hash_of(self, seq: Sequence, i: int) -> int:
        block_hash = NO_HASH
        for j in range(i + 1):
            block_hash = self.compute_hash(seq.block(j), block_hash)
        return block_hash

    def _hits(self, seq: Sequence) -> list[Block]:
        hits: list[Block] = []
        block_hash = NO_HASH
        for i in range(seq.num_blocks - 1 if self.enable_prefix_caching else 0):
            block_hash = self.compute_hash(seq.block(i), block_hash)
            block_id = self.hash_to_block_id.get(block_hash)
            if block_id is None or self.blocks[block_id].prefix != seq.token_ids[: (i + 1) * self.block_size]:
                break
            hits.append(self.blocks[block_id])
        return hits

    # END SOLUTION
