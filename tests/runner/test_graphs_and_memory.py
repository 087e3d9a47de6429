"""What a GPU runner decides before it has a GPU: graph sizes, memory, backends, and the arrays that cross."""

import random

import numpy as np
import pytest
import torch
from kit.runs import SMALL, row

from nanoinfer.config import EngineConfig
from nanoinfer.core.overlap.in_flight import PENDING
from nanoinfer.core.sequence import Sequence
from nanoinfer.models.config import Qwen3Config
from nanoinfer.models.ops import Ops
from nanoinfer.models.parallel import Ranks, check_divisible
from nanoinfer.runner import kv_cache
from nanoinfer.runner.attention import BACKENDS, make_backend, obstacle
from nanoinfer.runner.graphs import DecodeGraphs, graph_sizes
from nanoinfer.runner.host_step import array_shapes
from nanoinfer.runner.inputs import decode_arrays, prefill_arrays

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
MODEL = Qwen3Config.from_dict(SMALL)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 8, 9, 12, 16, 17, 20, 100, 512])
def test_graph_sizes_reach_the_largest_batch(most):  # B84
    sizes = graph_sizes(most)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] >= most
    assert sizes[-1] - most < 16
    assert sizes[0] == 1


def test_a_batch_runs_in_the_smallest_graph_that_holds_it():
    graphs = DecodeGraphs.__new__(DecodeGraphs)
    graphs.sizes = graph_sizes(40)
    assert [graphs.size_for(rows) for rows in (1, 3, 8, 9, 16, 17, 40, 48, 49)] == [1, 4, 8, 16, 16, 32, 48, 48, None]


class TwoRanks(Ranks):
    """The other rank has so many bytes left."""

    size = 2

    def __init__(self, others):
        self.others = others

    def least(self, number):
        return min(number, self.others)


def test_the_pool_is_what_fits_on_every_rank():  # B83
    config = EngineConfig(kvcache_block_size=16)
    block = kv_cache.bytes_per_block(MODEL, 16, torch.float32, ranks=2)
    assert block * 2 == kv_cache.bytes_per_block(MODEL, 16, torch.float32)
    assert kv_cache.num_blocks(config, MODEL, torch.float32, 40 * block, TwoRanks(20 * block)) == 20
    with pytest.raises(ValueError, match=f"takes {block} bytes, {block - 1} are left"):  # there, not here
        kv_cache.num_blocks(config, MODEL, torch.float32, 40 * block, TwoRanks(block - 1))


@pytest.mark.parametrize(
    ("total", "free", "held", "activations", "budget"),
    [
        (100, 100, 10, 5, 25),  # its share of 40, less what it holds and needs
        (100, 40, 0, 5, 35),  # others hold 60: not subtracted from its share as well
        (100, 20, 0, 5, 15),  # but what is not free cannot be had
        (100, 100, 50, 5, -15),  # the weights alone are too large
    ],
)
def test_the_memory_budget_of_a_gpu(monkeypatch, total, free, held, activations, budget):  # B83
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, total))
    config = EngineConfig(gpu_memory_utilization=0.4)
    assert kv_cache.memory_budget(config, CUDA, held, activations) == budget


def test_a_budget_below_one_block_gives_the_numbers():  # B83
    with pytest.raises(ValueError, match=r"-15 are left.*gpu_memory_utilization=0.4"):
        kv_cache.num_blocks(EngineConfig(gpu_memory_utilization=0.4), MODEL, torch.float32, -15, Ranks())


@pytest.mark.parametrize("tokens", [7, 64, 500])
def test_the_largest_step_fills_the_budget_within_its_buffers(tokens):
    config = EngineConfig(max_num_batched_tokens=tokens, max_num_seqs=4, kvcache_block_size=16)
    step = kv_cache.largest_step(config, max_model_len=100)
    assert sum(step.query_lens) == len(step.arrays["token_ids"]) == min(tokens, 400)
    assert max(step.query_lens) <= 100
    shapes = array_shapes(tokens, 4, 7)
    assert step.arrays.keys() == shapes.keys()
    for name, array in step.arrays.items():
        dtype, largest = shapes[name]
        assert array.dtype == dtype, name
        assert all(n <= most for n, most in zip(array.shape, largest, strict=True)), name


# ---- what crosses to the device ---------------------------------------------------------------


def test_padding_rows_write_nowhere_and_look_at_nothing():
    seqs = [Sequence(i, range(5 + i), block_size=4) for i in range(3)]
    rows = [row(seq, [2 * i, 2 * i + 1], len(seq) - 1, 1, decode=True) for i, seq in enumerate(seqs)]
    plain, padded = decode_arrays(rows, 4), decode_arrays(rows, 4, width=6, padded_rows=8)
    assert padded["block_tables"].shape == (8, 6)
    for name, array in plain.items():
        whole = padded[name]
        if name == "block_tables":
            assert (whole[:3, :2] == array).all()
        elif name != "query_starts":
            assert (whole[:3] == array).all(), name
    assert (padded["slot_mapping"][3:] == -1).all()
    assert (padded["context_lens"][3:] == 0).all()
    assert (padded["block_tables"][3:] == 0).all()
    assert all(array.dtype == np.int32 for array in padded.values())


def test_a_pending_token_names_the_row_that_samples_it():
    rng = random.Random(0)
    seqs = [Sequence(i, [rng.randrange(60) for _ in range(6)], block_size=4) for i in range(3)]
    for seq in seqs[1:]:
        seq.token_ids[-1] = PENDING
    rows = [row(seq, [i, 9 - i], 5, 1, decode=True) for i, seq in enumerate(seqs)]
    sampled = torch.tensor([11, 12, 13, 14])
    for arrays in (decode_arrays(rows, 4, 0, {1: 3, 2: 0}), prefill_arrays(rows, 4, 0, {1: 3, 2: 0})):
        assert arrays["token_ids"].tolist() == [seqs[0].token_ids[-1], -4, -1]
        ids = Ops().feed_tokens(torch.from_numpy(arrays["token_ids"]), sampled)
        assert ids.tolist() == [seqs[0].token_ids[-1], 14, 11]
    with pytest.raises(KeyError):
        decode_arrays(rows, 4, 0, {1: 3})


# ---- backends ---------------------------------------------------------------------------------


@pytest.fixture
def all_installed(monkeypatch):
    monkeypatch.setattr("nanoinfer.runner.attention.find_spec", lambda name: object())


@pytest.mark.parametrize(
    ("name", "device", "dtype", "block_size", "reason"),
    [
        ("triton", CUDA, torch.float32, 24, "multiple of 16, got 24"),
        ("flash_attn", CUDA, torch.float32, 256, "bfloat16, got dtype='float32'"),
        ("flash_triton", CUDA, torch.float32, 256, "bfloat16, got dtype='float32'"),
        ("flash_attn", CPU, torch.bfloat16, 256, "CUDA device, got device='cpu'"),
    ],
)
def test_a_backend_that_cannot_serve_says_why(all_installed, name, device, dtype, block_size, reason):
    with pytest.raises(ValueError, match=reason) as error:
        make_backend(name, device, dtype, block_size)
    assert f"attention_backend={name!r}" in str(error.value)


def test_the_interpreter_computes_in_float32_alone(all_installed, monkeypatch):
    monkeypatch.setattr("nanoinfer.runner.attention.interpreted", lambda name: name == "triton")
    with pytest.raises(ValueError, match=r"attention_backend='triton' computes in float32 alone.*'bfloat16'"):
        make_backend("triton", CPU, torch.bfloat16, 16)
    assert obstacle("triton", CPU, torch.float32, 16) is None


def test_older_gpus_do_without_flash_attention(all_installed, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(ValueError, match="attention_backend='flash_triton' needs a GPU of the Ampere"):
        make_backend("flash_triton", CUDA, torch.bfloat16, 256)
    assert make_backend("auto", CUDA, torch.bfloat16, 256).name == "triton"


def test_a_backend_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("nanoinfer.runner.attention.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"flash_attn and triton.*nanoinfer\[gpu\]"):
        make_backend("flash_triton", CUDA, torch.bfloat16, 256)
    assert make_backend("auto", CUDA, torch.bfloat16, 256).name == "torch"


def test_every_backend_has_a_reason_or_none_on_every_machine():
    for name in BACKENDS:
        for device in (CPU, CUDA):
            reason = obstacle(name, device, torch.float32, 16)
            assert reason is None or isinstance(reason, str)


# ---- sharing ----------------------------------------------------------------------------------


def test_what_cannot_be_divided_is_refused_by_name():  # B87
    model = Qwen3Config.from_dict(SMALL | {"num_attention_heads": 6, "vocab_size": 60})
    with pytest.raises(ValueError, match=r"size=4 .*num_attention_heads 6, num_key_value_heads 2.*1, 2$"):
        check_divisible(model, 4)
    with pytest.raises(ValueError, match=r"vocab_size 10.*"):
        check_divisible(Qwen3Config.from_dict(SMALL | {"vocab_size": 10}), 3)
    check_divisible(model, 2)
