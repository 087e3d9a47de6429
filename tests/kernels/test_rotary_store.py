"""Norm, rotation and cache write against the model's own layers and against float64."""

import pytest
import torch
import torch.nn.functional as F
from kit.comparison import DEVICE, DTYPES, assert_close, random

from nanoinfer.kernels.rotary_store import norm_rope_store
from nanoinfer.models.layers import RotaryEmbedding
from nanoinfer.models.ops import Ops, rotate

EPS = 1e-6
POSITIONS = [0, 7, 30, 3, 63]
SLOTS = [9, 2, -1, 0, 11]


def case(group, kv_heads, head_dim, dtype):
    tokens = len(POSITIONS)
    return {
        "qkv": random(tokens, (group + 2) * kv_heads * head_dim, dtype=dtype),
        "q_weight": random(head_dim, dtype=dtype),
        "k_weight": random(head_dim, dtype=dtype),
        "rotary": RotaryEmbedding(head_dim, 64, 10_000.0, torch.device(DEVICE)),
        "positions": torch.tensor(POSITIONS, device=DEVICE),
        "slots": torch.tensor(SLOTS, device=DEVICE),
        "memory": (memory := torch.full((13, 2, kv_heads, head_dim), torch.nan, dtype=dtype, device=DEVICE)),
        "cache": memory[1:],  # a write to slot -1 would hit memory[0]
    }


def run(case):
    key_cache, value_cache = case["cache"].unbind(1)
    rotary = case["rotary"]
    weights = case["q_weight"], case["k_weight"]
    places = case["positions"], case["slots"]
    norm_rope_store(case["qkv"], *weights, EPS, rotary.cos, rotary.sin, *places, key_cache, value_cache)


def parts(qkv, group, kv_heads, head_dim):
    heads = qkv.view(len(qkv), -1, head_dim)
    return heads.split([group * kv_heads, kv_heads, kv_heads], dim=1)


def model_layers(x, weight, rotary, positions):
    return rotate(F.rms_norm(x, weight.shape, weight, EPS), *Ops().rotation(rotary.cos, rotary.sin, positions))


def double_precision(x, weight, rotary, positions):
    x = x.double()
    x = x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()
    cos, sin = (table.double() for table in Ops().rotation(rotary.cos, rotary.sin, positions))
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("group", "kv_heads", "head_dim"), [(1, 2, 64), (2, 2, 128), (4, 1, 64), (5, 1, 16), (8, 1, 128), (3, 1, 48)]
)
def test_norm_rope_store(group, kv_heads, head_dim, dtype):
    given = case(group, kv_heads, head_dim, dtype)
    q, k, v = (part.clone() for part in parts(given["qkv"], group, kv_heads, head_dim))
    run(given)
    new_q, new_k, new_v = parts(given["qkv"], group, kv_heads, head_dim)
    for before, after, weight in ((q, new_q, given["q_weight"]), (k, new_k, given["k_weight"])):
        assert_close(after, double_precision(before, weight, given["rotary"], given["positions"]))
        expected = model_layers(before, weight, given["rotary"], given["positions"])
        assert_close(after, expected.double(), bound={4: 1e-6, 2: 1e-3}[dtype.itemsize])
    assert torch.equal(new_v, v)

    written = [(token, slot) for token, slot in enumerate(SLOTS) if slot >= 0]
    for token, slot in written:
        assert torch.equal(given["cache"][slot, 0], new_k[token])
        assert torch.equal(given["cache"][slot, 1], v[token])
    rest = sorted(set(range(12)) - {slot for _, slot in written})
    assert given["cache"][rest].isnan().all()
    assert given["memory"][0].isnan().all()  # a negative slot has written nowhere


def test_results_are_rounded_between_norm_and_rotation():
    given = case(2, 2, 64, torch.bfloat16)
    q = parts(given["qkv"], 2, 2, 64)[0].clone()
    run(given)
    expected = model_layers(q, given["q_weight"], given["rotary"], given["positions"])
    unrounded = model_layers(q.float(), given["q_weight"].float(), given["rotary"], given["positions"]).bfloat16()
    assert (unrounded != expected).float().mean() > 0.05
    assert (parts(given["qkv"], 2, 2, 64)[0] != expected).float().mean() < 0.01


def test_tables_of_half_the_width_give_the_same():
    full, half = case(2, 1, 64, torch.float32), case(2, 1, 64, torch.float32)
    half["qkv"] = full["qkv"].clone()
    half["q_weight"], half["k_weight"] = full["q_weight"], full["k_weight"]
    half["rotary"].cos = half["rotary"].cos[:, 32:].contiguous()
    half["rotary"].sin = half["rotary"].sin[:, 32:].contiguous()
    run(full)
    run(half)
    assert torch.equal(full["qkv"], half["qkv"])


def test_separate_caches_and_wide_rows():
    """Slot strides of the two caches differ, and qkv's rows lie apart."""
    given = case(2, 2, 64, torch.float32)
    wide = torch.full((5, 700), torch.nan, device=DEVICE)
    wide[:, 100 : 100 + 512] = given["qkv"]
    run(given)
    key_cache = torch.zeros(12, 2, 64, device=DEVICE)
    value_cache = torch.zeros(12, 3, 2, 64, device=DEVICE)[:, 1]
    tables = given["rotary"].cos, given["rotary"].sin
    places = given["positions"].int(), given["slots"].int()
    weights = given["q_weight"], given["k_weight"]
    norm_rope_store(wide[:, 100:612], *weights, EPS, *tables, *places, key_cache, value_cache)
    close = {
        "rtol": 1e-5,
        "atol": 1e-6,
    }  # another variant of the kernel may sum in another order
    torch.testing.assert_close(wide[:, 100:612], given["qkv"], **close)
    assert wide[:, :100].isnan().all()
    assert wide[:, 612:].isnan().all()
    written = [slot for slot in SLOTS if slot >= 0]
    torch.testing.assert_close(key_cache[written], given["cache"][written, 0], **close)
    assert torch.equal(value_cache[written], given["cache"][written, 1])
