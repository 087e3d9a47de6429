"""What several ranks compute, against one: the same numbers, whatever is cut over them."""

import time

import numpy as np
import pytest
import torch
from kit.ranks_in_threads import LIMITS, on_ranks, save_checkpoint, watch_all, watch_one

from nanoinfer import LLM, EngineConfig, SamplingParams
from nanoinfer.models.config import load_config
from nanoinfer.parallel import launcher
from nanoinfer.parallel.runner import TORCHRUN_VARIABLES, lead_or_serve
from nanoinfer.runner import kv_cache
from nanoinfer.runner.host_step import Filters, HostStep

pytestmark = pytest.mark.timeout(60)

PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [8, 9], [63, 0, 31, 32, 33] * 8, [1, 2, 3, 4, 5, 6, 9]]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=6, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=3, max_tokens=8, ignore_eos=True),
    SamplingParams(temperature=0.7, top_k=9, max_tokens=5, ignore_eos=True),
    SamplingParams(temperature=1.5, top_p=0.8, seed=4, max_tokens=7, ignore_eos=True),
]


@pytest.mark.parametrize(
    ("size", "files", "changes"),
    [
        (2, 1, {}),
        (4, 1, {"tie_word_embeddings": False}),
        (2, 3, {"attention_bias": True, "tie_word_embeddings": False}),
        (4, 2, {"attention_bias": True, "vocab_size": 68, "intermediate_size": 20}),
    ],
    ids=["tied", "untied", "biases", "biases, tied, odd sizes"],
)
def test_logits_and_tokens_are_those_of_one_device(tmp_path, size, files, changes):
    """B82: a bias behind a sum over the ranks is added once. The long prompt is cut into chunks."""
    directory = save_checkpoint(tmp_path, files, **changes)
    prompts = [[i % 64 for i in ids] for ids in PROMPTS]
    expected = watch_one(directory, prompts, PARAMS)
    by_rank = watch_all(size, directory, prompts, PARAMS)
    assert len(expected) > 8
    for (tokens, logits), (same_tokens, same_logits) in zip(expected, by_rank[0], strict=True):
        assert tokens == same_tokens
        assert torch.allclose(logits, same_logits, rtol=0, atol=1e-5 * float(logits.abs().max()))
    assert float(expected[0][1].std()) > 0.5, "logits that hardly differ show nothing"


def test_every_rank_samples_the_same_tokens_from_the_same_bits(tmp_path):
    """Nobody sends tokens around, so each rank must come to the same ones; the next step goes on from them."""
    by_rank = watch_all(4, save_checkpoint(tmp_path), PROMPTS, PARAMS)
    for rank in (1, 2, 3):
        for (tokens, logits), (same_tokens, same_logits) in zip(by_rank[0], by_rank[rank], strict=True):
            assert tokens == same_tokens
            assert torch.equal(logits, same_logits)


def test_random_weights_are_the_same_for_any_number_of_ranks(tmp_path):
    directory = save_checkpoint(tmp_path, attention_bias=True)
    expected = watch_one(directory, PROMPTS, PARAMS, load_format="dummy", seed=5)
    by_rank = watch_all(2, directory, PROMPTS, PARAMS, load_format="dummy", seed=5)
    for (_, logits), (_, same_logits) in zip(expected, by_rank[0], strict=True):
        assert torch.allclose(logits, same_logits, rtol=0, atol=1e-6)


def test_bfloat16_goes_through_the_cpu_groups_too(tmp_path):
    by_rank = watch_all(2, save_checkpoint(tmp_path), PROMPTS, PARAMS, dtype="bfloat16")
    assert by_rank[0][0][1].dtype == torch.bfloat16
    assert [tokens for tokens, _ in by_rank[0]] == [tokens for tokens, _ in by_rank[1]]


def test_a_rank_holds_only_its_part_of_weights_and_cache(tmp_path):
    from nanoinfer.runner.model_runner import ModelRunner

    directory = save_checkpoint(tmp_path)
    whole = ModelRunner(EngineConfig(**LIMITS), directory)

    def sizes(runner):
        parameters = {name: p.numel() for name, p in runner.loaded.model.named_parameters()}
        return parameters, sum(cache.blocks.numel() for cache in runner.loaded.caches)

    for parameters, cache in on_ranks(4, lambda ranks: sizes(ModelRunner(EngineConfig(**LIMITS), directory, ranks))):
        assert cache == sizes(whole)[1] // 4
        for name, count in sizes(whole)[0].items():
            assert parameters[name] == (count if "norm" in name else count // 4), name


# ---- agreements ---------------------------------------------------------------------------


class Others:
    """A rank whose fellows have room for so many blocks."""

    rank, size, device_index = 0, 2, 0

    def __init__(self, *numbers):
        self.numbers = numbers

    def least(self, number):
        return min(number, *self.numbers)


def test_the_pool_is_as_large_as_the_smallest_rank_allows(tmp_path):
    """B83: 40 blocks fit here and 20 there."""
    model = load_config(save_checkpoint(tmp_path))
    config = EngineConfig(kvcache_block_size=4)
    block = kv_cache.bytes_per_block(model, 4, torch.float32, 2)
    assert kv_cache.num_blocks(config, model, torch.float32, 40 * block, Others(100 * block)) == 40
    assert kv_cache.num_blocks(config, model, torch.float32, 40 * block, Others(20 * block)) == 20
    with pytest.raises(ValueError, match="no room for the KV cache"):
        kv_cache.num_blocks(config, model, torch.float32, 40 * block, Others(0))
    counts = on_ranks(2, lambda ranks: ranks.least([40, 20][ranks.rank]))
    assert counts == [20, 20]


def test_sum_and_concat(tmp_path):
    def do(ranks):
        part = torch.tensor([[1.0, 2.0], [3.0, 4.0]]) * 10**ranks.rank
        out = torch.empty(2, 6)
        ranks.concat(part, out)
        return ranks.concat(part), out, ranks.sum(part)

    for joined, out, total in on_ranks(3, do):
        assert joined.tolist() == out.tolist() == [[1, 2, 10, 20, 100, 200], [3, 4, 30, 40, 300, 400]]
        assert total.tolist() == [[111, 222], [333, 444]]


def step_of(num_tokens: int, filters: Filters | None = None) -> HostStep:
    arrays = {"token_ids": np.arange(num_tokens, dtype=np.int32), "keys": np.array([-(2**63), 5], np.int64)}
    return HostStep([1, 0], arrays, 4, filters)


def test_steps_of_any_size_arrive_whole_and_in_order():
    """B80: half a million tokens, and commands that come before the ones before them were read."""
    steps = [step_of(500_000), step_of(1, Filters([1], [3], [0.5])), step_of(7)]

    def do(ranks):
        if ranks.rank == 0:
            for step in steps:
                ranks.broadcast(step)
            return ranks.broadcast(None), ranks.flush()
        got = []
        while step := ranks.receive():
            time.sleep(0.05)
            got.append(step)
        return got

    for got in on_ranks(3, do)[1:]:
        assert [len(step.arrays["token_ids"]) for step in got] == [500_000, 1, 7]
        for sent, step in zip(steps, got, strict=True):
            assert (step.places, step.graph_size, step.filters) == (sent.places, sent.graph_size, sent.filters)
            for name, array in sent.arrays.items():
                assert step.arrays[name].dtype == array.dtype
                assert np.array_equal(step.arrays[name], array)
                assert step.arrays[name].flags.writeable  # torch warns of others


# ---- refusals -----------------------------------------------------------------------------


@pytest.fixture
def no_process(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr(launcher.subprocess, "Popen", refuse)


@pytest.mark.parametrize(
    ("changes", "size", "words"),
    [
        ({"num_attention_heads": 6, "num_key_value_heads": 2}, 4, "num_attention_heads 6, num_key_value_heads 2"),
        ({"vocab_size": 12 - 2}, 3, "vocab_size 10"),
    ],
)
def test_uneven_shapes_are_refused_before_a_process_starts(tmp_path, no_process, changes, size, words):
    """B87: with the sizes that would do."""
    directory = save_checkpoint(tmp_path, **{"eos_token_id": 1} | changes)
    with pytest.raises(ValueError, match=rf"tensor_parallel_size={size} does not divide .*{words}.* can be 1, 2"):
        LLM(directory, tensor_parallel_size=size, device="cpu")


def test_more_ranks_than_gpus_are_refused_before_a_process_starts(tmp_path, no_process, monkeypatch):
    directory = save_checkpoint(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with pytest.raises(ValueError, match="tensor_parallel_size=4 needs 4 GPUs, torch finds 3"):
        lead_or_serve(EngineConfig(tensor_parallel_size=4), directory)


def test_another_number_of_torchrun_processes_is_refused(tmp_path, no_process, monkeypatch):
    for name in TORCHRUN_VARIABLES:
        monkeypatch.setenv(name, "4")
    with pytest.raises(ValueError, match="tensor_parallel_size=2, but torchrun has started 4"):
        lead_or_serve(EngineConfig(tensor_parallel_size=2, device="cpu"), save_checkpoint(tmp_path))
