"""What `config.json` says about a Qwen3, checked once and kept in a small frozen dataclass.

Two layouts are in the wild: `rope_theta` and `torch_dtype` at the top level (the published checkpoints), and
`rope_parameters` and `dtype` (transformers 5). Both give the same `Qwen3Config`.

This file does not resolve model names and reads no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Qwen3Config:
    """Shape of one Qwen3. `head_dim` is independent of `hidden_size / num_attention_heads`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    attention_bias: bool
    tie_word_embeddings: bool
    dtype: str
    eos_token_ids: tuple[int, ...] = ()

    def layer_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of the matrices of one decoder layer."""
        attention = 2 * (self.num_attention_heads + self.num_key_value_heads) * self.head_dim
        return self.hidden_size * (attention + 3 * self.intermediate_size) * dtype.itemsize

    @classmethod
    def from_dict(cls, raw: Json, generation: Json | None = None) -> Qwen3Config:
        """Build from the contents of `config.json` and, for further eos ids, `generation_config.json`.

        Raises:
            ValueError: not a Qwen3, a feature that is not supported, or a missing field; names the field.
        """
        refuse_unsupported(raw)
        try:
            heads = int(raw["num_attention_heads"])
            return cls(
                vocab_size=int(raw["vocab_size"]),
                hidden_size=int(raw["hidden_size"]),
                intermediate_size=int(raw["intermediate_size"]),
                num_hidden_layers=int(raw["num_hidden_layers"]),
                num_attention_heads=heads,
                num_key_value_heads=int(raw.get("num_key_value_heads") or heads),
                head_dim=int(raw.get("head_dim") or raw["hidden_size"] // heads),
                max_position_embeddings=int(raw["max_position_embeddings"]),
                rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
                rope_theta=rope_theta(raw),
                attention_bias=bool(raw.get("attention_bias", False)),
                tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
                dtype=str(raw.get("dtype") or raw.get("torch_dtype") or "float32"),
                eos_token_ids=eos_token_ids(raw, generation or {}),
            )
        except KeyError as missing:
            raise ValueError(f"config.json lacks {missing}, which a Qwen3 needs") from None


def load_config(model_dir: Path) -> Qwen3Config:
    """Read `config.json`, and `generation_config.json` where there is one.

    Raises:
        ValueError: no config.json, not JSON, or not a supported model; names the file.
    """
    generation = model_dir / "generation_config.json"
    return Qwen3Config.from_dict(
        read_json(model_dir / "config.json"), read_json(generation) if generation.exists() else None
    )


def read_json(path: Path) -> Json:
    """A JSON object from a file. Raises ValueError with the path."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"no {path.name} in {path.parent}: is it a model directory?") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


def refuse_unsupported(raw: Json) -> None:
    """Raise ValueError for anything that would silently give other logits than the model was trained for."""
    architectures, model_type = raw.get("architectures") or ["Qwen3ForCausalLM"], raw.get("model_type")
    if model_type != "qwen3" or "Qwen3ForCausalLM" not in architectures:
        raise ValueError(
            f"unsupported model: model_type {model_type!r}, architectures {architectures}; "
            "this engine runs model_type 'qwen3', architecture 'Qwen3ForCausalLM'"
        )
    if raw.get("hidden_act", "silu") != "silu":
        raise ValueError(f"hidden_act must be 'silu', got {raw['hidden_act']!r}")
    layer_types = raw.get("layer_types") or []
    if raw.get("use_sliding_window") or any(kind != "full_attention" for kind in layer_types):
        raise ValueError(
            f"sliding window attention is not supported: use_sliding_window={raw.get('use_sliding_window')}, "
            f"layer_types={sorted(set(layer_types))}"
        )
    for field in ("rope_scaling", "rope_parameters"):
        rope = raw.get(field) or {}
        kind = rope.get("rope_type", rope.get("type"))
        if kind not in (None, "default") or (kind is None and "factor" in rope):
            raise ValueError(
                f"{field}: rope type {kind!r} with factor {rope.get('factor')} is not supported, only 'default'; "
                f"remove {field} to run without it, on contexts as long as the model was trained on"
            )


def rope_theta(raw: Json) -> float:
    """The RoPE base, wherever this layout keeps it. Raises KeyError when it is nowhere."""
    for place in (raw.get("rope_parameters"), raw.get("rope_scaling"), raw):
        if place and place.get("rope_theta") is not None:
            return float(place["rope_theta"])
    raise KeyError("rope_theta")


def eos_token_ids(*sources: Json) -> tuple[int, ...]:
    """Every end-of-sequence id any source names, an int or a list of them; first seen first."""
    ids: list[int] = []
    for source in sources:
        value = source.get("eos_token_id")
        ids += [] if value is None else value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(ids))
