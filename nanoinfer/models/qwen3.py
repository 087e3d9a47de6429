"""Qwen3 (Qwen Team, 2025): a pre-norm decoder with grouped-query attention and normalised queries and keys.

Modules and parameters carry the checkpoint's names. A batch is flat: the tokens of all sequences in one row, and
only attention needs to know where one sequence ends; it is told by an explicit metadata object.

This file does not lay out the KV cache, does not load weights, and does not sample.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from nanoinfer.models.config import Qwen3Config
from nanoinfer.models.layers import Embedding, Linear, MergedLinear, Placement, RMSNorm, RotaryEmbedding, rotate

Rotation = tuple[Tensor, Tensor]


class Attend(Protocol):
    """What the model needs from an attention backend."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, metadata: Any) -> Tensor:
        """Write key and value [num_tokens, kv_heads, head_dim] into one layer's cache, then let each query
        [num_tokens, heads, head_dim] see its own sequence up to itself. Returns the shape of query."""


class Qwen3Attention(nn.Module):
    """Grouped-query attention (Ainslie et al., 2023) with per-head RMSNorm on queries and keys."""

    def __init__(self, config: Qwen3Config, backend: Attend, place: Placement) -> None:
        super().__init__()
        heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        hidden, bias = config.hidden_size, config.attention_bias
        self.head_dim = dim
        self.q_proj = Linear(hidden, heads * dim, bias, place)
        self.k_proj = Linear(hidden, kv_heads * dim, bias, place)
        self.v_proj = Linear(hidden, kv_heads * dim, bias, place)
        self.o_proj = Linear(heads * dim, hidden, bias, place)
        self.q_norm = RMSNorm(dim, config.rms_norm_eps, place)
        self.k_norm = RMSNorm(dim, config.rms_norm_eps, place)
        self.qkv = MergedLinear(self.q_proj, self.k_proj, self.v_proj)
        self.backend = backend

    def forward(self, x: Tensor, rotation: Rotation, kv_cache: Tensor, metadata: Any) -> Tensor:
        q, k, v = (part.view(len(x), -1, self.head_dim) for part in self.qkv(x))  # each [num_tokens, heads, head_dim]
        q = rotate(self.q_norm(q), *rotation)
        k = rotate(self.k_norm(k), *rotation)
        out = self.backend.attend(q, k, v, kv_cache, metadata)
        return self.o_proj(out.flatten(1))  # type: ignore[no-any-return]


class Qwen3MLP(nn.Module):
    """Gated feed-forward layer, SwiGLU (Shazeer, 2020)."""

    def __init__(self, config: Qwen3Config, place: Placement) -> None:
        super().__init__()
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size, False, place)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size, False, place)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, False, place)
        self.gate_up = MergedLinear(self.gate_proj, self.up_proj)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x)
        return self.down_proj(F.silu(gate) * up)  # type: ignore[no-any-return]


class Qwen3DecoderLayer(nn.Module):
    """Attention, then the feed-forward layer, each on a normalised copy and added back."""

    def __init__(self, config: Qwen3Config, backend: Attend, place: Placement) -> None:
        super().__init__()
        self.self_attn = Qwen3Attention(config, backend, place)
        self.mlp = Qwen3MLP(config, place)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)

    def forward(self, x: Tensor, rotation: Rotation, kv_cache: Tensor, metadata: Any) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, kv_cache, metadata)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Qwen3Model(nn.Module):
    """Embedding, decoder layers and the final norm."""

    def __init__(self, config: Qwen3Config, backend: Attend, place: Placement) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, place)
        self.layers = nn.ModuleList(Qwen3DecoderLayer(config, backend, place) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.rotary = RotaryEmbedding(
            config.head_dim, config.max_position_embeddings, config.rope_theta, place["device"]
        )

    def forward(self, token_ids: Tensor, positions: Tensor, kv_caches: list[Tensor], metadata: Any) -> Tensor:
        x = self.embed_tokens(token_ids)
        rotation = self.rotary.at(positions)  # the same for every layer
        for layer, kv_cache in zip(self.layers, kv_caches, strict=True):
            x = layer(x, rotation, kv_cache, metadata)
        return self.norm(x)  # type: ignore[no-any-return]


class Qwen3ForCausalLM(nn.Module):
    """The whole model, parameters uninitialised; see `loader.py`.

    Args:
        config: the shape.
        backend: how attention reads and writes the KV cache.
        place: dtype and device of the parameters.
    """

    def __init__(self, config: Qwen3Config, backend: Attend, place: Placement) -> None:
        super().__init__()
        self.config = config
        self.model = Qwen3Model(config, backend, place)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, False, place)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, token_ids: Tensor, positions: Tensor, kv_caches: list[Tensor], metadata: Any) -> Tensor:
        """Hidden states [num_tokens, hidden_size] of a flat batch.

        Args:
            token_ids: [num_tokens], the scheduled tokens of all sequences, one after the other.
            positions: [num_tokens], each token's place in its own sequence, from 0.
            kv_caches: one tensor for each layer, in the backend's layout; written in place.
            metadata: what the backend prepared for this batch.
        """
        return self.model(token_ids, positions, kv_caches, metadata)  # type: ignore[no-any-return]

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Logits [rows, vocab_size] of hidden states [rows, hidden_size]; only rows that sample need them."""
        return self.lm_head(hidden)  # type: ignore[no-any-return]
