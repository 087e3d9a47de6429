"""The model against transformers: same checkpoint, same tokens, same logits."""

import pytest
import torch
from kit.checkpoints import load, logits_of, save_reference
from transformers import Qwen3ForCausalLM

from nanoinfer.engine.checkpoint import resolve_model

PROMPTS = [[5, 17, 3, 42, 8, 30, 11, 2, 9], [7], [60, 1, 60, 59]]
SHAPES = [
    {},
    {"tie_word_embeddings": True},
    {"attention_bias": True},
    {"attention_bias": True, "tie_word_embeddings": True},
    {"num_attention_heads": 8, "num_key_value_heads": 1},
    {"num_key_value_heads": 4},
    {"head_dim": 32, "num_key_value_heads": 1},
    {"head_dim": 6, "num_attention_heads": 3, "num_key_value_heads": 3},
    {"num_hidden_layers": 5, "intermediate_size": 20},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}, "rms_norm_eps": 1e-3},
    {"hidden_size": 20, "vocab_size": 97, "head_dim": 64},
]


def largest_difference(runner, reference, prompts) -> float:
    with torch.inference_mode():
        expected = [reference(torch.tensor([tokens])).logits[0].float() for tokens in prompts]
    ours = logits_of(runner, prompts)
    return max((a.float() - b).abs().max().item() for a, b in zip(ours, expected, strict=True))


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_logits_are_those_of_transformers(tmp_path, changes):
    reference = save_reference(tmp_path, **changes)
    assert largest_difference(load(tmp_path), reference, PROMPTS) < 1e-4


def test_sharded_checkpoint(tmp_path):
    reference = save_reference(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert largest_difference(load(tmp_path), reference, PROMPTS) < 1e-4


def test_the_shipped_model():
    directory = resolve_model("tiny")
    reference = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    assert largest_difference(load(directory), reference, [list(range(100, 180)), [4000, 1, 2]]) < 1e-4


def test_bfloat16_is_close_to_transformers_in_bfloat16(tmp_path):
    reference = save_reference(tmp_path).to(torch.bfloat16)
    runner = load(tmp_path, dtype="bfloat16")
    assert runner.dtype == runner.loaded.caches[0].key.dtype == torch.bfloat16
    spread = logits_of(runner, PROMPTS)[0].float().std().item()
    assert largest_difference(runner, reference, PROMPTS) < 0.1 * spread


def test_every_bias_counts(tmp_path):  # B82: a dropped bias still gives fluent text
    save_reference(tmp_path, attention_bias=True)
    runner = load(tmp_path)
    before = logits_of(runner, PROMPTS)[0]
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        bias = getattr(runner.loaded.model.model.layers[0].self_attn, name).bias
        kept = bias.clone()
        bias.zero_()
        after = logits_of(runner, PROMPTS)[0]
        bias.copy_(kept)
        # Not even the key's cancels in the softmax: it is normalised and rotated with its key.
        assert (after - before).abs().max() > 1e-3, name


def test_head_dim_is_independent_of_hidden_size(tmp_path):  # B76
    save_reference(tmp_path, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32)
    attention = load(tmp_path).loaded.model.model.layers[0].self_attn
    assert attention.q_proj.weight.shape == (128, 64)
    assert attention.k_proj.weight.shape == attention.v_proj.weight.shape == (64, 64)
    assert attention.o_proj.weight.shape == (64, 128)
