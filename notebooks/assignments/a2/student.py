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
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    def deallocate(self, seq: Sequence) -> None:
        """Give up all blocks of `seq`, the last one first; a block that nobody holds goes to the end of the free list.

        A freed block keeps its hash: it can be found until it is taken for something else. Sets `seq.block_table` to a
        new empty list, `seq.num_cached_tokens` and `seq.num_computed_tokens` to 0. A second call changes nothing.
        """
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    # ---- part 2: growing ----

    def can_append(self, seq: Sequence) -> bool:
        """Whether the newest token of `seq` has a place: a slot in its last block, or a free block.

        The newest token is already in `seq.token_ids`. Changes nothing.
        """
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    def may_append(self, seq: Sequence) -> None:
        """Give `seq` one more block if its newest token has no slot. Callers ask `can_append` first."""
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    # ---- part 3: the prefix cache ----

    def compute_hash(self, token_ids: Tokens[int], prefix: int = NO_HASH) -> int:
        """A number from 0 to 2**64 - 1 for the tokens of one block and the hash of the block before it.

        Equal for equal tokens in every process, and for a list and a numpy array. Token ids are 0 or more; `prefix` is
        NO_HASH for the first block. Call it as `self.compute_hash(token_ids, prefix)`: the tests put another one with
        this signature in its place.
        """
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    def hash_blocks(self, seq: Sequence) -> None:
        """Make the blocks findable that the step just run has filled.

        The step has computed `seq.num_scheduled_tokens` tokens after the first `seq.num_computed_tokens`. Only full
        blocks count. Under one hash the block that was registered last is found.

        Chain the hashes by the tokens of `seq`, or by what you have kept in `seq.block_hashes`. The block before may
        have no hash any more: after `reset_prefix_cache` its tokens are still there.
        """
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    def can_allocate(self, seq: Sequence) -> int:
        """How many blocks of `seq` the prefix cache holds, or -1 if the free list is too short. Changes nothing.

        Hits are counted from the first block on and end at the first miss. A hit needs equal tokens from the first on,
        not only an equal hash. The block with the last token never counts, so that at least one token is computed.
        """
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    def num_needed_blocks(self, seq: Sequence) -> int:
        """How many blocks `allocate` takes from the free list: the new ones, and the hits that lie there."""
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    def reset_prefix_cache(self) -> None:
        """Nothing can be found any more. Blocks in use stay with their sequences."""
        # YOUR CODE HERE
        raise NotImplementedError("to be written")

    # Helpers of your own go here.
