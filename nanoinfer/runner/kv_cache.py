"""How much memory the KV cache takes, and how many blocks of it fit.

Pure arithmetic plus one query for free GPU memory; `ModelRunner.allocate_kv_cache` makes the tensors.
"""

from __future__ import annotations

import torch

from nanoinfer.config import EngineConfig
from nanoinfer.models.config import Qwen3Config

CPU_KV_BYTES = 1 << 30  # a laptop has other things to hold


def bytes_per_block(model: Qwen3Config, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block over all layers. A head's width is head_dim, not hidden_size / heads."""
    per_token = 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim * dtype.itemsize
    return block_size * per_token


def num_blocks(config: EngineConfig, model: Qwen3Config, dtype: torch.dtype, device: torch.device) -> int:
    """Blocks in the pool: what the config asks for, or what fits and could ever be used.

    Raises:
        ValueError: not even one block fits; gives the numbers.
    """
    if config.num_kvcache_blocks != -1:
        return config.num_kvcache_blocks
    block_bytes = bytes_per_block(model, config.kvcache_block_size, dtype)
    budget = memory_budget(config, device)
    if budget < block_bytes:
        raise ValueError(
            f"no room for the KV cache: one block of kvcache_block_size={config.kvcache_block_size} tokens takes "
            f"{block_bytes} bytes, {budget} are left for it; use smaller blocks, or set num_kvcache_blocks yourself"
        )
    longest = min(config.max_model_len, model.max_position_embeddings)
    usable = config.max_num_seqs * -(-longest // config.kvcache_block_size)
    return min(budget // block_bytes, usable)


def memory_budget(config: EngineConfig, device: torch.device) -> int:
    """Bytes the KV cache may take, once the weights are loaded.

    On a GPU the engine's share of the device, less what it holds already, but never more than is free: other
    processes may hold the rest. What the share leaves over is for activations.
    """
    if device.type == "cpu":
        return CPU_KV_BYTES
    free, total = torch.cuda.mem_get_info(device)
    share = int(total * config.gpu_memory_utilization) - torch.cuda.memory_reserved(device)
    return min(share, free)
