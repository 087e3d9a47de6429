"""The attention backend interface, and the registry that picks a backend by name.

A backend owns the layout of the KV cache and the way attention reads it. Per step it is asked once to `prepare`,
and then once per layer to `attend`; whatever it wants to keep between the two travels in the metadata it returned.

This file contains no attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One step's flat batch, as attention sees it. Row i owns query_lens[i] consecutive tokens.

    Attributes:
        query_lens: tokens each row computes in this step.
        context_lens: tokens each row may look at, the computed ones included; its queries are the last of them.
        block_tables: [rows, most blocks], int64, padded with 0: physical block of each logical block.
        slot_mapping: [num_tokens], int64: the physical slot that each token's key and value are written to.
        block_size: token slots in one block.
    """

    query_lens: list[int]
    context_lens: list[int]
    block_tables: Tensor
    slot_mapping: Tensor
    block_size: int


class AttentionBackend(Protocol):
    """Paged attention over a KV cache of blocks. `name` is what the registry calls it."""

    name: str

    def kv_cache_shape(self, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int) -> tuple[int, ...]:
        """Shape of one layer's cache, keys and values together."""

    def prepare(self, batch: AttentionBatch, dtype: torch.dtype) -> Any:
        """What `attend` needs to know of this step, computed once for all layers. Mutates nothing."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, metadata: Any) -> Tensor:
        """Write key and value [num_tokens, kv_heads, head_dim] to the cache, then return attention outputs
        [num_tokens, heads, head_dim]. No slot past a row's context length is ever read."""


# Where each backend lives; imported when chosen, because some need packages that not every machine has.
BACKENDS = {"torch": ("nanoinfer.runner.torch_attention", "TorchAttention")}


def make_backend(name: str) -> AttentionBackend:
    """The backend of that name; "auto" chooses.

    Raises:
        ValueError: an unknown name; lists the known ones.
    """
    chosen = "torch" if name == "auto" else name
    if chosen not in BACKENDS:
        raise ValueError(f"attention_backend must be one of {', '.join(('auto', *BACKENDS))}, got {name!r}")
    module, cls = BACKENDS[chosen]
    backend: AttentionBackend = getattr(import_module(module), cls)()
    return backend
