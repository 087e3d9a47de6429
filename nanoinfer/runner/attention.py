"""The attention backend interface, and the registry that picks a backend by name.

A backend owns the layout of the KV cache and the way attention reads it. Per step it is asked once to `prepare`,
and then once per layer to `attend`; what the second needs from the first travels in the metadata it returned.

This file contains no attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import torch
from torch import Tensor

from nanoinfer.kernels.interpreter import is_interpreting
from nanoinfer.models.ops import LayerCache


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One step's flat batch, as attention sees it. Row i owns query_lens[i] consecutive tokens.

    The lists are for the host to plan with; the tensors, int32, hold the same for the device.

    Attributes:
        query_lens: tokens each row computes in this step.
        context_lens: tokens each row may look at, the computed ones included; its queries are the last of them.
        query_starts: [rows + 1], where in the flat batch each row's tokens begin, and the end of the last.
        context_lengths: [rows], as `context_lens`; 0 marks a padding row, which reads nothing.
        block_tables: [rows, most blocks], padded with 0: physical block of each logical block.
        block_size: token slots in one block.
    """

    query_lens: list[int]
    context_lens: list[int]
    query_starts: Tensor
    context_lengths: Tensor
    block_tables: Tensor
    block_size: int

    @property
    def is_decode(self) -> bool:
        """Whether every row computes one token, its last."""
        return len(self.query_lens) == int(self.query_starts.shape[0]) - 1 == sum(self.query_lens)

    @property
    def has_cached_context(self) -> bool:
        """Whether some row looks at tokens that an earlier step computed."""
        return self.query_lens != self.context_lens


class AttentionBackend(Protocol):
    """Paged attention over a KV cache of blocks.

    Attributes:
        name: what the registry calls it.
        block_multiple: kvcache_block_size must be a multiple of this.
        in_graphs: whether decode can be captured in a CUDA graph: `attend` looks at nothing but device memory.
    """

    name: str
    block_multiple: int
    in_graphs: bool

    def kv_cache_shape(self, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int) -> tuple[int, ...]:
        """Shape of one layer's cache, keys and values together."""

    def views(self, blocks: Tensor) -> LayerCache:
        """The cache with its two views by token slot."""

    def prepare(self, batch: AttentionBatch, dtype: torch.dtype) -> Any:
        """What `attend` needs to know about this step, computed once for all layers. Mutates nothing."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache, metadata: Any) -> Tensor:
        """Attention outputs [num_tokens, heads, head_dim] of query [num_tokens, heads, head_dim]; the step's own key
        and value [num_tokens, kv_heads, head_dim] are in the cache already. No slot past a row's context length is
        ever read."""


class KeysThenValues:
    """The layout that the GPU backends share, so that one may prefill and the other decode: a layer's cache is
    [2, num_blocks, block_size, kv_heads, head_dim], all keys and then all values."""

    def kv_cache_shape(self, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int) -> tuple[int, ...]:
        return (2, num_blocks, block_size, num_kv_heads, head_dim)

    def views(self, blocks: Tensor) -> LayerCache:
        return LayerCache(blocks, *blocks.flatten(1, 2).unbind(0))


# Where each backend lives, and the packages it needs, fastest first; imported when chosen: not every machine has them.
BACKENDS = {
    "flash_triton": ("nanoinfer.runner.flash_attention", "FlashTritonAttention", ("flash_attn", "triton")),
    "flash_attn": ("nanoinfer.runner.flash_attention", "FlashAttention", ("flash_attn",)),
    "triton": ("nanoinfer.runner.triton_attention", "TritonAttention", ("triton",)),
    "torch": ("nanoinfer.runner.torch_attention", "TorchAttention", ()),
}

AMPERE = (8, 0)  # compute capability; flash-attn has nothing for older GPUs


def make_backend(name: str, device: torch.device, dtype: torch.dtype, block_size: int) -> AttentionBackend:
    """The backend of that name; "auto" takes the first that this machine, dtype and block size allow.

    Raises:
        ValueError: an unknown name, or a backend that cannot serve this; says why and what to do.
    """
    if name == "auto":
        fastest_first = list(BACKENDS) if device.type == "cuda" else ["torch"]
        name = next(known for known in fastest_first if not obstacle(known, device, dtype, block_size))
    if name not in BACKENDS:
        raise ValueError(f"attention_backend must be one of {', '.join(('auto', *BACKENDS))}, got {name!r}")
    reason = obstacle(name, device, dtype, block_size)
    if reason:
        raise ValueError(f"attention_backend={name!r} {reason}")
    return load(name)


def obstacle(name: str, device: torch.device, dtype: torch.dtype, block_size: int) -> str | None:
    """Why a known backend cannot serve; None when it can."""
    missing = [package for package in BACKENDS[name][2] if find_spec(package) is None]
    if missing:
        return f"needs {' and '.join(missing)}, which is not installed; install nanoinfer[gpu], or use 'auto'"
    if name == "torch":
        return None
    if device.type != "cuda" and not interpreted(name):
        return f"needs a CUDA device, got device={device.type!r}; use 'torch' or 'auto'"
    if device.type != "cuda" and dtype != torch.float32:
        return f"computes in float32 alone in Triton's interpreter; use dtype='float32', got {dtype_name(dtype)!r}"
    needs_flash = "flash_attn" in BACKENDS[name][2]
    if needs_flash and dtype != torch.bfloat16:
        return f"computes in bfloat16, got dtype={dtype_name(dtype)!r}; use 'triton' or 'auto'"
    if needs_flash and torch.cuda.get_device_capability(device) < AMPERE:
        return "needs a GPU of the Ampere generation or later; use 'triton' or 'auto'"
    multiple = load(name).block_multiple
    if block_size % multiple:
        return f"needs kvcache_block_size to be a multiple of {multiple}, got {block_size}"
    return None


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def interpreted(name: str) -> bool:
    """Whether Triton's interpreter runs this backend's kernels on the CPU (TRITON_INTERPRET=1)."""
    return name == "triton" and is_interpreting()


def load(name: str) -> AttentionBackend:
    module, cls, _ = BACKENDS[name]
    backend: AttentionBackend = getattr(import_module(module), cls)()
    return backend
