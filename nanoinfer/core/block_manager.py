"""The block manager: which physical KV block belongs to whom, and which can be found again.

It is the only owner of block state. It knows block ids and token contents; it does not know
queues or policies, and it never touches the KV tensors themselves. Every operation costs
O(1) per block it handles, whatever the size of the pool.

A block is in one of four conditions:

    in the free list?   findable by hash?
    yes                 no                  empty
    yes                 yes                 free but still cached: a hit revives it
    no                  no                  in use, not full yet (or its twin is the findable one)
    no                  yes                 in use, and others may share it
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence as Tokens

import xxhash

from nanoinfer.core.sequence import Sequence
from nanoinfer.trace.recorder import NULL_RECORDER, Recorder
from nanoinfer.trace.state import NO_HASH


class CachedPrefix:
    """What a findable block holds: its own tokens, and through `parent` all tokens before them.

    A chained hash may collide, so a hit is believed only if the contents agree from the root on.
    """

    __slots__ = ("parent", "token_ids")

    def __init__(self, token_ids: list[int], parent: CachedPrefix | None) -> None:
        self.token_ids = token_ids
        self.parent = parent

    def equals(self, token_ids: list[int], parent: CachedPrefix | None) -> bool:
        """Whether this is `token_ids` after `parent`. Equal twins share one object, so this rarely walks."""
        if self.token_ids != token_ids:
            return False
        mine = self.parent
        while mine is not parent:
            if mine is None or parent is None or mine.token_ids != parent.token_ids:
                return False
            mine, parent = mine.parent, parent.parent
        return True


class Block:
    """One physical block: how many tables hold it, and what it can be found under."""

    __slots__ = ("block_id", "content", "hash", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.hash = NO_HASH
        self.content: CachedPrefix | None = None

    @property
    def token_ids(self) -> list[int]:
        """Tokens of a registered block, also after the cache has forgotten it; empty before, and once it is reused."""
        return self.content.token_ids if self.content else []


class BlockManager:
    """Allocates, shares and frees KV blocks for sequences.

    Args:
        num_blocks: size of the pool.
        block_size: token slots per block.

    Attributes:
        free_block_ids: the free list, first in first out (an ordered dict, so a hit can leave its middle in O(1)).
        hash_to_block_id: the findable blocks. Twins have one entry, the one registered last.
        enable_prefix_caching: when False nothing is registered and nothing hits.
        recorder: told of every mutation; does nothing by default.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"num_blocks and block_size must be at least 1, got {num_blocks} and {block_size}")
        self.block_size = block_size
        self.blocks = [Block(i) for i in range(num_blocks)]
        self.free_block_ids: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self.hash_to_block_id: dict[int, int] = {}
        self.enable_prefix_caching = True
        self.recorder: Recorder = NULL_RECORDER

    # ---- admission: a table for a whole sequence ------------------------------------------

    def can_allocate(self, seq: Sequence) -> int:
        """Blocks the prefix cache already holds for `seq`, or -1 if its table does not fit. Changes nothing."""
        hits = self._prefix_hits(seq)
        return len(hits) if self._num_needed(seq, hits) <= len(self.free_block_ids) else -1

    def num_needed_blocks(self, seq: Sequence) -> int:
        """Blocks that admitting `seq` takes from the free list: new ones, and hits that lie there. Changes nothing."""
        return self._num_needed(seq, self._prefix_hits(seq))

    def allocate(self, seq: Sequence, num_cached_blocks: int) -> None:
        """Reserve the whole table of `seq`: its first `num_cached_blocks` by prefix hits, the rest new.

        Raises:
            RuntimeError: before anything is taken, if the blocks or the hits are not there or `seq` has a table.
        """
        hits = self._prefix_hits(seq)[:num_cached_blocks]
        needed, free = self._num_needed(seq, hits), len(self.free_block_ids)
        if seq.block_table or len(hits) < num_cached_blocks or needed > free:
            raise RuntimeError(
                f"cannot allocate sequence {seq.seq_id}: needs {needed} free blocks of {free}, expects "
                f"{num_cached_blocks} cached blocks of {len(hits)}, already holds {len(seq.block_table)}"
            )
        seq.num_cached_tokens = seq.num_computed_tokens = num_cached_blocks * self.block_size
        self.recorder.admit(seq.seq_id, seq.num_cached_tokens, self._first_miss(seq, num_cached_blocks))
        for block in hits:
            self._take_hit(seq, block)
        for _ in range(seq.num_blocks - num_cached_blocks):
            self._take_new(seq)

    def deallocate(self, seq: Sequence) -> None:
        """Give up every block of `seq`, tail first, so that shared prefixes are reused last. Twice is a no-op."""
        for block_id in reversed(seq.block_table):
            block = self.blocks[block_id]
            block.ref_count -= 1
            self.recorder.release(seq.seq_id, block_id)
            if block.ref_count == 0:
                self.free_block_ids[block_id] = None
        seq.block_table = []
        seq.num_cached_tokens = seq.num_computed_tokens = 0

    # ---- decode: one more token -----------------------------------------------------------

    def can_append(self, seq: Sequence) -> bool:
        """Whether the newest token of `seq` has a slot or a free block to go to. Changes nothing."""
        return not self._crosses_boundary(seq) or bool(self.free_block_ids)

    def may_append(self, seq: Sequence) -> None:
        """Reserve a block for the newest token of `seq` if it is the first of a block.

        Raises:
            RuntimeError: it is, and no block is free: ask `can_append` first.
        """
        if self._crosses_boundary(seq):
            if not self.free_block_ids:
                raise RuntimeError(f"sequence {seq.seq_id} needs a block for token {len(seq) - 1}, and none is free")
            self._take_new(seq)

    def _crosses_boundary(self, seq: Sequence) -> bool:
        # The sampled token is already in token_ids, but its KV is not: with every block so far
        # full, len % block_size is 1 now (and 0 when a block holds a single token).
        return len(seq) > len(seq.block_table) * self.block_size

    # ---- the prefix cache -----------------------------------------------------------------

    def compute_hash(self, token_ids: Tokens[int], prefix: int = NO_HASH) -> int:
        """64-bit hash of a block's tokens chained to the hash of the block before it; equal in every process."""
        digest = xxhash.xxh64()
        if prefix != NO_HASH:
            digest.update(prefix.to_bytes(8, "little"))
        digest.update(struct.pack(f"<{len(token_ids)}q", *token_ids))
        return digest.intdigest()

    def hash_blocks(self, seq: Sequence) -> None:
        """Make findable the blocks of `seq` that this step fills. Call before the counters advance."""
        if not self.enable_prefix_caching:
            return
        first = seq.num_computed_tokens // self.block_size
        end = (seq.num_computed_tokens + seq.num_scheduled_tokens) // self.block_size
        for i in range(first, end):
            parent = self.blocks[seq.block_table[i - 1]].content if i else None
            self._register(seq, i, parent)

    def reset_prefix_cache(self) -> None:
        """Forget every findable block. Blocks in use stay with their sequences."""
        for block_id in list(self.hash_to_block_id.values()):
            self._forget(self.blocks[block_id])

    def _register(self, seq: Sequence, i: int, parent: CachedPrefix | None) -> None:
        block = self.blocks[seq.block_table[i]]
        block_hash = self._block_hash(seq, i)
        twin = self._find(block_hash, seq.block(i), parent)
        block.content = twin.content if twin else CachedPrefix(seq.block(i), parent)
        block.hash = block_hash
        self.hash_to_block_id[block_hash] = block.block_id
        self.recorder.register_hash(seq.seq_id, block.block_id, block_hash)

    def _find(self, block_hash: int, token_ids: list[int], parent: CachedPrefix | None) -> Block | None:
        block_id = self.hash_to_block_id.get(block_hash)
        if block_id is None:
            return None
        block = self.blocks[block_id]
        return block if block.content and block.content.equals(token_ids, parent) else None

    def _prefix_hits(self, seq: Sequence) -> list[Block]:
        """Findable blocks of the longest cached prefix. The last one never counts: the logits of its end are needed."""
        hits: list[Block] = []
        if not self.enable_prefix_caching:
            return hits
        parent = None
        for i in range(seq.num_blocks - 1):
            block = self._find(self._block_hash(seq, i), seq.block(i), parent)
            if block is None:
                break
            hits.append(block)
            parent = block.content
        return hits

    def _num_needed(self, seq: Sequence, hits: list[Block]) -> int:
        return seq.num_blocks - sum(block.ref_count > 0 for block in hits)

    def _first_miss(self, seq: Sequence, num_cached_blocks: int) -> int | None:
        """Hash that the lookup did not find; None when only the last block was left to compute."""
        return seq.block_hashes[num_cached_blocks] if num_cached_blocks < len(seq.block_hashes) else None

    def _block_hash(self, seq: Sequence, i: int) -> int:
        """Chained hash of full block `i`, remembered on the sequence since its tokens never change."""
        hashes = seq.block_hashes
        while len(hashes) <= i:
            hashes.append(self.compute_hash(seq.block(len(hashes)), hashes[-1] if hashes else NO_HASH))
        return hashes[i]

    # ---- single blocks --------------------------------------------------------------------

    def _take_hit(self, seq: Sequence, block: Block) -> None:
        if block.ref_count:
            self.recorder.share(seq.seq_id, block.block_id)
        else:
            del self.free_block_ids[block.block_id]
            self.recorder.reuse(seq.seq_id, block.block_id)
        block.ref_count += 1
        seq.block_table.append(block.block_id)

    def _take_new(self, seq: Sequence) -> None:
        block_id, _ = self.free_block_ids.popitem(last=False)
        block = self.blocks[block_id]
        self._forget(block)
        block.content = None
        block.ref_count = 1
        self.recorder.allocate(seq.seq_id, block_id)
        seq.block_table.append(block_id)

    def _forget(self, block: Block) -> None:
        """Remove a block from the prefix cache; a freed block stays in it until its memory is needed."""
        if block.hash == NO_HASH:
            return
        if self.hash_to_block_id.get(block.hash) == block.block_id:
            del self.hash_to_block_id[block.hash]
        self.recorder.evict_hash(block.block_id, block.hash)
        block.hash = NO_HASH
