"""The memory side of the roofline (Williams, Waterman and Patterson, 2009): the byte floor, decoding's least time.

A decode step reads every weight once, whatever the batch, and the keys and values of every context. Arithmetic and
prefill are not counted, so a real run takes longer. Weights that fit in a processor's cache need not come out of
memory again, and then the floor is no limit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nanoinfer.models.config import Qwen3Config

COPY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}
COPIES = 8


@dataclass(frozen=True)
class ModelBytes:
    """The bytes that a decode step of one model reads.

    Attributes:
        weights: bytes of all parameters, an untied embedding left out: only the rows of the batch are read of it.
        kv_per_token: bytes of the keys and values of one token of context, over all layers.
    """

    weights: int
    kv_per_token: int


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second between a device and its memory, and where the number is from."""

    bytes_per_second: float
    source: str


def model_bytes(config: Qwen3Config, itemsize: int) -> ModelBytes:
    """The sizes of a Qwen3 whose parameters and cache take `itemsize` bytes a number."""
    hidden, dim = config.hidden_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    matrices = hidden * (2 * (heads + kv_heads) * dim + 3 * config.intermediate_size)
    norms = 2 * hidden + 2 * dim
    layers = config.num_hidden_layers * (matrices + norms)
    head = config.vocab_size * hidden
    return ModelBytes(
        weights=(layers + hidden + head) * itemsize,  # hidden: the final norm
        kv_per_token=2 * config.num_hidden_layers * kv_heads * dim * itemsize,
    )


def decode_steps(output_lens: Sequence[int], max_num_seqs: int) -> int:
    """The fewest decode steps: each request's first token comes from its prefill, a step holds max_num_seqs rows."""
    rows = sum(output_lens) - len(output_lens)
    return max(max(output_lens) - 1, -(-rows // max_num_seqs))


def contexts_read(prompt_lens: Sequence[int], output_lens: Sequence[int]) -> int:
    """Tokens of context that all decode steps together read; the k-th of a request reads its prompt and k more."""
    return sum((o - 1) * p + (o - 1) * o // 2 for p, o in zip(prompt_lens, output_lens, strict=True))


def floor_seconds(
    prompt_lens: Sequence[int],
    output_lens: Sequence[int],
    max_num_seqs: int,
    model: ModelBytes,
    bytes_per_second: float,
) -> float:
    """Least seconds of all decode steps of a work."""
    weights = decode_steps(output_lens, max_num_seqs) * model.weights
    contexts = contexts_read(prompt_lens, output_lens) * model.kv_per_token
    return (weights + contexts) / bytes_per_second


def measure_bandwidth(device: str) -> Bandwidth:
    """The best of a few copies; a copy moves its bytes twice, out of memory and back."""
    copy_seconds = _cuda_copy_seconds if device == "cuda" else _numpy_copy_seconds
    size = COPY_BYTES[device]
    best = min(copy_seconds(size))
    return Bandwidth(2 * size / best, "measured, device copy" if device == "cuda" else "measured, numpy copy")


def _numpy_copy_seconds(size: int) -> list[float]:
    import numpy as np

    source, target = np.ones(size, dtype=np.uint8), np.zeros(size, dtype=np.uint8)
    seconds = []
    for _ in range(COPIES):
        start = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - start)
    return seconds


def _cuda_copy_seconds(size: int) -> list[float]:
    import torch

    source = torch.ones(size, dtype=torch.uint8, device="cuda")
    target = torch.zeros_like(source)
    event: Any = torch.cuda.Event
    seconds = []
    for _ in range(COPIES):
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1000)
    del source, target
    torch.cuda.empty_cache()  # the engine wants the memory
    return seconds
