"""Loading: every parameter filled, every tensor wanted, and errors that say what to do."""

import json

import pytest
import torch
from kit.checkpoints import edit_config, load, logits_of, save_reference
from safetensors.torch import load_file, save_file


def rewrite(directory, change):
    """Edit the tensors of a saved checkpoint in place."""
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, directory / "model.safetensors")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("stored", [False, True])
def test_tied_head_shares_the_embedding(tmp_path, dtype, stored):  # B79
    save_reference(tmp_path, tie_word_embeddings=True)
    if stored:
        rewrite(tmp_path, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    model = load(tmp_path, dtype=dtype).loaded.model
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    expected = load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(model.lm_head.weight.data, expected.to(model.lm_head.weight.dtype))


def test_a_head_that_a_tied_model_would_leave_unused_is_refused(tmp_path):  # B79
    save_reference(tmp_path, tie_word_embeddings=True)
    rewrite(tmp_path, lambda t: t.update({"lm_head.weight": 2 * t["model.embed_tokens.weight"]}))
    with pytest.raises(ValueError, match=r"lm_head.weight in .* is not model.embed_tokens.weight.*set that to false"):
        load(tmp_path)


def test_untied_head_is_its_own(tmp_path):  # B79
    reference = save_reference(tmp_path)
    model = load(tmp_path).loaded.model
    assert torch.equal(model.lm_head.weight, reference.lm_head.weight)
    assert torch.equal(model.model.embed_tokens.weight, reference.model.embed_tokens.weight)
    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)


def test_parameters_carry_the_checkpoint_names(tmp_path):
    reference = save_reference(tmp_path, attention_bias=True)
    ours = dict(load(tmp_path).loaded.model.named_parameters())
    assert set(ours) == set(dict(reference.named_parameters()))
    assert all(torch.equal(ours[name], value) for name, value in reference.named_parameters())


def test_merged_matmuls_hold_nothing_twice(tmp_path):
    save_reference(tmp_path)
    attention = load(tmp_path).loaded.model.model.layers[0].self_attn
    assert attention.q_proj.weight.data_ptr() == attention.qkv.weight.data_ptr()
    assert torch.equal(attention.qkv.weight[-32:], attention.v_proj.weight)


def test_no_checkpoint(tmp_path):
    save_reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors.*dummy"):
        load(tmp_path)


def test_absent_shard(tmp_path):
    save_reference(tmp_path, max_shard_size="10KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ValueError, match=f"names shards.*{shard.name}"):
        load(tmp_path)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\xff" * len(b)])
def test_damaged_file(tmp_path, damage):
    save_reference(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"model\.safetensors.*damaged"):
        load(tmp_path)


def test_damaged_index(tmp_path):
    save_reference(tmp_path, max_shard_size="10KB")
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json"):
        load(tmp_path)


def test_wrong_shape(tmp_path):
    save_reference(tmp_path)
    edit_config(tmp_path, intermediate_size=40)
    with pytest.raises(ValueError, match=r"mlp\.\w+\.weight has shape \[.*48.*\] .* \[.*40.*\]"):
        load(tmp_path)


def test_unexpected_tensor(tmp_path):
    save_reference(tmp_path)
    rewrite(tmp_path, lambda t: t.update({"model.layers.0.extra.weight": torch.ones(3)}))
    with pytest.raises(ValueError, match=r"model\.layers\.0\.extra\.weight \[3\]"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["model.layers.1.self_attn.k_norm.weight", "lm_head.weight"])
def test_unfilled_parameter(tmp_path, name):
    save_reference(tmp_path)
    rewrite(tmp_path, lambda t: t.pop(name))
    with pytest.raises(ValueError, match=name):
        load(tmp_path)


def test_dummy_weights_need_a_config_only_and_follow_the_seed(tmp_path):
    save_reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    one, same, other = (logits_of(load(tmp_path, load_format="dummy", seed=seed), [[1, 2, 3]])[0] for seed in (1, 1, 2))
    assert torch.isfinite(one).all()
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_loading_leaves_the_process_alone(tmp_path):
    save_reference(tmp_path)
    before = torch.get_default_dtype(), torch.get_default_device(), torch.get_rng_state()
    load(tmp_path, dtype="bfloat16")
    load(tmp_path, load_format="dummy")
    assert (torch.get_default_dtype(), torch.get_default_device()) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_index_that_is_not_an_index(tmp_path):
    save_reference(tmp_path, max_shard_size="10KB")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}}))
    with pytest.raises(ValueError, match="no tensor for"):
        load(tmp_path)
