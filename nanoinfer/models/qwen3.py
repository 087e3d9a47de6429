"""Qwen3 (Qwen Team, 2025): a pre-norm decoder with grouped-query attention and normalised queries and keys.

Modules and parameters carry the checkpoint's names. A batch is flat: the tokens of all sequences in one row, and
only attention needs to know where one sequence ends; it is told by an explicit metadata object.

`x` is what a layer computes, and `residual` the running sum it is added to: the addition is done by the next norm,
in place.

This file does not lay out the KV cache, does not load weights, and does not sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from nanoinfer.models.config import Qwen3Config
from nanoinfer.models.layers import (
    ColumnLinear,
    Embedding,
    MergedLinear,
    Placement,
    RMSNorm,
    RotaryEmbedding,
    RowLinear,
)
from nanoinfer.models.ops import LayerCache, Ops, PartialSums
from nanoinfer.models.parallel import Ranks


class Attend(Protocol):
    """What the model needs from an attention backend."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache, metadata: Any) -> Tensor:
        """Let each query [num_tokens, heads, head_dim] see its own sequence up to itself; the step's own key and
        value [num_tokens, kv_heads, head_dim] are in the cache already. Returns [num_tokens, heads, head_dim]."""


@dataclass(frozen=True)
class Parts:
    """What a model is made of, besides its shape.

    Attributes:
        place: dtype and device of the parameters.
        backend: how attention reads the KV cache.
        ops: how everything besides attention is computed.
        ranks: the devices that share the model.
    """

    place: Placement
    backend: Attend
    ops: Ops = field(default_factory=Ops)
    ranks: Ranks = field(default_factory=Ranks)

    @property
    def linear(self) -> tuple[Placement, Ranks, Ops]:
        """What every linear layer gets."""
        return self.place, self.ranks, self.ops


@dataclass(frozen=True, slots=True)
class Step:
    """What every layer knows about the step.

    Attributes:
        rotation: the angles of the tokens' positions, as the ops want them.
        slot_mapping: [num_tokens], the cache slot of each token.
        attention: what the backend prepared for this batch.
        decoding: whether each row is one token.
    """

    rotation: Any
    slot_mapping: Tensor
    attention: Any
    decoding: bool


class Qwen3Attention(nn.Module):
    """Grouped-query attention (Ainslie et al., 2023) with per-head RMSNorm on queries and keys."""

    def __init__(self, config: Qwen3Config, parts: Parts) -> None:
        super().__init__()
        heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        hidden, bias = config.hidden_size, config.attention_bias
        self.q_proj = ColumnLinear(hidden, heads * dim, bias, *parts.linear)
        self.k_proj = ColumnLinear(hidden, kv_heads * dim, bias, *parts.linear)
        self.v_proj = ColumnLinear(hidden, kv_heads * dim, bias, *parts.linear)
        self.o_proj = RowLinear(heads * dim, hidden, bias, *parts.linear)
        self.q_norm = RMSNorm(dim, config.rms_norm_eps, parts.place, parts.ops)
        self.k_norm = RMSNorm(dim, config.rms_norm_eps, parts.place, parts.ops)
        self.qkv = MergedLinear(self.q_proj, self.k_proj, self.v_proj)
        self.parts = parts

    def forward(self, x: Tensor, cache: LayerCache, step: Step) -> Tensor | PartialSums:
        q, k, v = self.parts.ops.norm_rotate_store(
            self.qkv(x, step.decoding),
            self.q_norm.weight,
            self.k_norm.weight,
            self.q_norm.eps,
            step.rotation,
            step.slot_mapping,
            cache,
        )
        out = self.parts.backend.attend(q, k, v, cache, step.attention)
        return self.o_proj(out.flatten(1), step.decoding)  # type: ignore[no-any-return]


class Qwen3MLP(nn.Module):
    """Gated feed-forward layer, SwiGLU (Shazeer, 2020)."""

    def __init__(self, config: Qwen3Config, parts: Parts) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = ColumnLinear(hidden, inner, False, *parts.linear)
        self.up_proj = ColumnLinear(hidden, inner, False, *parts.linear)
        self.down_proj = RowLinear(inner, hidden, False, *parts.linear)
        self.gate_up = MergedLinear(self.gate_proj, self.up_proj)
        self.ops = parts.ops

    def forward(self, x: Tensor, decoding: bool) -> Tensor | PartialSums:
        return self.down_proj(self.ops.silu_mul(self.gate_up(x, decoding)), decoding)  # type: ignore[no-any-return]


class Qwen3DecoderLayer(nn.Module):
    """Attention, then the feed-forward layer, each on a normalised copy of the running sum."""

    def __init__(self, config: Qwen3Config, parts: Parts) -> None:
        super().__init__()
        self.self_attn = Qwen3Attention(config, parts)
        self.mlp = Qwen3MLP(config, parts)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, parts.place, parts.ops)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, parts.place, parts.ops)

    def forward(
        self, x: Tensor | PartialSums | None, residual: Tensor, cache: LayerCache, step: Step
    ) -> Tensor | PartialSums:
        """x [num_tokens, hidden_size] is what the layer before computed; None for the first."""
        x = self.input_layernorm(residual) if x is None else self.input_layernorm.add(x, residual)
        x = self.self_attn(x, cache, step)
        return self.mlp(self.post_attention_layernorm.add(x, residual), step.decoding)  # type: ignore[no-any-return]


class Qwen3Model(nn.Module):
    """Embedding, decoder layers and the final norm."""

    def __init__(self, config: Qwen3Config, parts: Parts) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, parts.place, parts.ranks)
        self.layers = nn.ModuleList(Qwen3DecoderLayer(config, parts) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, parts.place, parts.ops)
        self.rotary = RotaryEmbedding(
            config.head_dim, config.max_position_embeddings, config.rope_theta, parts.place["device"]
        )

    def forward(self, token_ids: Tensor, caches: list[LayerCache], step: Step) -> Tensor:
        residual = self.embed_tokens(token_ids)
        x: Tensor | PartialSums | None = None
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, residual, cache, step)
        assert x is not None, "a model without layers"
        return self.norm.add(x, residual)


class Qwen3ForCausalLM(nn.Module):
    """The whole model, parameters uninitialised; see `loader.py`.

    Args:
        config: the shape.
        parts: where it lives and what it is computed with.
    """

    def __init__(self, config: Qwen3Config, parts: Parts) -> None:
        super().__init__()
        self.config = config
        self.ranks, self.ops = parts.ranks, parts.ops
        self.model = Qwen3Model(config, parts)
        self.lm_head = ColumnLinear(config.hidden_size, config.vocab_size, False, *parts.linear)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        caches: list[LayerCache],
        attention: Any,
        decoding: bool,
    ) -> Tensor:
        """Hidden states [num_tokens, hidden_size] of a flat batch.

        Args:
            token_ids: [num_tokens], the scheduled tokens of all sequences, one after the other.
            positions: [num_tokens], each token's place in its own sequence, from 0.
            slot_mapping: [num_tokens], the cache slot that each token's key and value are written to.
            caches: one for each layer; written in place.
            attention: what the backend prepared for this batch.
            decoding: whether each row of the batch is one token.
        """
        rotation = self.ops.rotation(self.model.rotary.cos, self.model.rotary.sin, positions)
        return self.model(token_ids, caches, Step(rotation, slot_mapping, attention, decoding))  # type: ignore[no-any-return]

    def compute_logits(self, hidden: Tensor, decoding: bool, out: Tensor | None = None) -> Tensor:
        """Logits [rows, vocab_size], in `out` where it is given, of `hidden` [rows, hidden_size]: what `forward`
        returned, or only the rows that sample."""
        if out is not None and self.ranks.size == 1:
            return torch.mm(hidden, self.lm_head.weight.t(), out=out)  # the head is large: no copy of its output
        return self.ranks.concat(self.lm_head(hidden, decoding), out)
