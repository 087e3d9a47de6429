"""Contexts of given lengths in a paged cache, and the attention they should give, in float64."""

import torch

from kit.comparison import DEVICE


class PagedCache:
    """One layer's keys and values, [num_slots, 2, kv_heads, head_dim], in blocks handed out in random order.

    Every slot that no context owns is nan, and so are the slots after a context in its own last block. Entries of the
    block tables past a context point far outside the cache.
    """

    def __init__(self, context_lens, kv_heads, head_dim, block_size, dtype):
        counts = [-(-length // block_size) for length in context_lens]
        order = torch.randperm(sum(counts) + 2).tolist()
        self.tables = torch.full((len(counts), max(counts) + 1), 2**30, dtype=torch.int32)
        self.cache = torch.full((len(order) * block_size, 2, kv_heads, head_dim), torch.nan, dtype=dtype)
        self.contexts = []
        for row, (length, count) in enumerate(zip(context_lens, counts, strict=True)):
            blocks = torch.tensor([order.pop() for _ in range(count)], dtype=torch.int64)
            self.tables[row, :count] = blocks
            slots = (blocks[:, None] * block_size + torch.arange(block_size)).flatten()[:length]
            self.contexts.append(torch.randn(length, 2, kv_heads, head_dim, dtype=torch.float32).to(dtype))
            self.cache[slots] = self.contexts[-1]
        self.cache, self.tables = self.cache.to(DEVICE), self.tables.to(DEVICE)
        self.key, self.value = self.cache.unbind(1)
        self.context_lens = torch.tensor(context_lens, dtype=torch.int32, device=DEVICE)

    def attend(self, row, query, scale):
        """float64 [queries, heads, head_dim]: attention of the row's last tokens, each up to itself."""
        key, value = self.contexts[row].to(DEVICE).double().unbind(1)
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query.double(), key) * scale
        queries, context = scores.shape[1:]
        future = torch.ones(queries, context, dtype=torch.bool, device=DEVICE).triu(context - queries + 1)
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(future, -torch.inf).softmax(-1), value)
