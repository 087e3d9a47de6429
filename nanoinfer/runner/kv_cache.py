"""How much memory the KV cache takes, and how many blocks of it fit.

Arithmetic, plus one query for free GPU memory; `ModelRunner` measures, and makes the tensors.
"""

from __future__ import annotations

import numpy as np
import torch

from nanoinfer.config import EngineConfig
from nanoinfer.models.config import Qwen3Config
from nanoinfer.models.parallel import Ranks
from nanoinfer.runner.host_step import HostStep, array_shapes

CPU_KV_BYTES = 1 << 30  # a laptop has other things to hold


def bytes_per_block(model: Qwen3Config, block_size: int, dtype: torch.dtype, ranks: int = 1) -> int:
    """Bytes of one block over all layers, on one of `ranks` devices. A head's width is head_dim, not hidden_size /
    heads."""
    heads = model.num_key_value_heads // ranks
    per_token = 2 * model.num_hidden_layers * heads * model.head_dim * dtype.itemsize
    return block_size * per_token


def num_blocks(config: EngineConfig, model: Qwen3Config, dtype: torch.dtype, budget: int, ranks: Ranks) -> int:
    """Blocks in the pool: what the config asks for, or what fits on every rank and could ever be used.

    Raises:
        ValueError: not even one block fits; gives the numbers.
    """
    if config.num_kvcache_blocks != -1:
        return config.num_kvcache_blocks
    block_bytes = bytes_per_block(model, config.kvcache_block_size, dtype, ranks.size)
    least = ranks.least(budget)
    fitting = least // block_bytes
    if fitting < 1:
        raise ValueError(
            f"no room for the KV cache: one block of kvcache_block_size={config.kvcache_block_size} tokens takes "
            f"{block_bytes} bytes, {least} are left for it (gpu_memory_utilization={config.gpu_memory_utilization}); "
            "use smaller blocks, set num_kvcache_blocks yourself, or on a GPU raise gpu_memory_utilization"
        )
    longest = min(config.max_model_len, model.max_position_embeddings)
    usable = config.max_num_seqs * -(-longest // config.kvcache_block_size)
    return min(fitting, usable)


def memory_budget(config: EngineConfig, device: torch.device, held: int, activations: int) -> int:
    """Bytes the KV cache may take, once the weights are loaded.

    On a GPU the engine's share of the device, less what it holds already and what its largest step takes, but never
    more than is free: other processes, and other engines in this one, may hold the rest. `held` are the bytes that the
    engine has allocated, `activations` those that its largest step needs for a while.
    """
    if device.type == "cpu":
        return CPU_KV_BYTES
    free, total = torch.cuda.mem_get_info(device)
    share = int(total * config.gpu_memory_utilization)
    return min(share - held, free) - activations


def largest_step(config: EngineConfig, max_model_len: int) -> HostStep:
    """Made-up prompts that fill max_num_batched_tokens, in a cache of one block: for measuring memory.

    Every token is written to slot 0 and every table names block 0, so the results mean nothing.
    """
    total = config.max_num_batched_tokens
    longest = min(max_model_len, total)
    count = min(-(-total // longest), config.max_num_seqs)
    lengths = np.full(count, longest, np.int32)
    lengths[-1] = min(longest, max(total - longest * (count - 1), 1))
    starts = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=starts[1:])
    tokens, width = int(starts[-1]), -(-max_model_len // config.kvcache_block_size)
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in array_shapes(tokens, count, width).items()}
    arrays |= {
        "temperatures": np.ones(count, np.float32),
        "last_indices": starts[1:] - 1,
        "query_starts": starts,
        "context_lens": lengths,
        "positions": np.arange(tokens, dtype=np.int32) - np.repeat(starts[:-1], lengths),
    }
    return HostStep(places=list(range(count)), arrays=arrays, graph_size=None, filters=None)
