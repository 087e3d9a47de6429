"""What is read from config.json, and what is refused."""

import json

import pytest
import torch
from kit.checkpoints import SMALL, save_reference

from nanoinfer.models.config import Qwen3Config, load_config
from nanoinfer.models.layers import RotaryEmbedding

RAW = SMALL | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_act": "silu", "rope_theta": 1e4}
CPU = torch.device("cpu")


def test_one_theta_in_three_places_gives_one_table():  # B77
    bare = {name: value for name, value in RAW.items() if name != "rope_theta"}
    places = [
        bare | {"rope_theta": 1e6, "rope_scaling": None},
        bare | {"rope_scaling": {"rope_theta": 1e6, "rope_type": "default"}},
        bare | {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
    ]
    thetas = [Qwen3Config.from_dict(raw).rope_theta for raw in places]
    tables = [RotaryEmbedding(16, 64, theta, CPU) for theta in thetas]
    other = RotaryEmbedding(16, 64, 1e4, CPU)
    assert all(torch.equal(table.cos, tables[0].cos) and torch.equal(table.sin, tables[0].sin) for table in tables)
    assert not torch.equal(other.cos, tables[0].cos)


def test_theta_nowhere_is_an_error():
    with pytest.raises(ValueError, match="rope_theta"):
        Qwen3Config.from_dict({name: value for name, value in RAW.items() if name != "rope_theta"})


@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_yarn_is_refused_by_name(field, key):  # B78
    with pytest.raises(ValueError, match=f"{field}.*yarn"):
        Qwen3Config.from_dict(RAW | {field: {key: "yarn", "factor": 4.0, "rope_theta": 1e6}})


def test_a_scaling_factor_without_a_type_is_refused_too():  # B78: never ignored
    with pytest.raises(ValueError, match=r"rope_scaling: rope type None with factor 4.0"):
        Qwen3Config.from_dict(RAW | {"rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768}})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "llama"}, "llama"),
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "Qwen3MoeForCausalLM"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
    ],
)
def test_what_would_give_wrong_logits_is_refused(change, named):
    with pytest.raises(ValueError, match=named):
        Qwen3Config.from_dict(RAW | change)


def test_both_layouts_read_the_same(tmp_path):
    save_reference(tmp_path, attention_bias=True)
    new = json.loads((tmp_path / "config.json").read_text())
    assert "rope_parameters" in new
    assert "dtype" in new
    old = {name: value for name, value in new.items() if name not in ("rope_parameters", "dtype")}
    old |= {"rope_theta": new["rope_parameters"]["rope_theta"], "torch_dtype": new["dtype"]}
    assert Qwen3Config.from_dict(old) == Qwen3Config.from_dict(new)


def test_eos_ids_are_the_union_of_both_files(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(RAW | {"eos_token_id": 5}))
    assert load_config(tmp_path).eos_token_ids == (5,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 5]}))
    assert load_config(tmp_path).eos_token_ids == (5, 7)


def test_defaults_of_absent_fields():
    raw = {name: value for name, value in RAW.items() if name not in ("head_dim", "num_key_value_heads")}
    config = Qwen3Config.from_dict(raw)
    assert (config.head_dim, config.num_key_value_heads, config.dtype) == (8, 4, "float32")


@pytest.mark.parametrize(
    ("text", "named"), [(None, "no config.json"), ("{", "config.json"), ("[]", "object"), ("{}", "model_type")]
)
def test_unreadable_config(tmp_path, text, named):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=named):
        load_config(tmp_path)


def test_missing_field_is_named():
    with pytest.raises(ValueError, match="hidden_size"):
        Qwen3Config.from_dict({name: value for name, value in RAW.items() if name != "hidden_size"})
