"""The runner as a whole: positions, lengths, and completions that no scheduling accident may change."""

import gc
import json
import random
import weakref

import pytest
import torch
from kit.helpers import POLICIES
from kit.runs import GREEDY, SMALL, make_runner, plan, row, run_all

from nanoinfer.config import EngineConfig
from nanoinfer.core.sequence import Sequence
from nanoinfer.engine.checkpoint import resolve_model
from nanoinfer.models.config import Qwen3Config
from nanoinfer.models.parallel import Ranks
from nanoinfer.runner import kv_cache
from nanoinfer.runner.device import resolve_device, resolve_dtype
from nanoinfer.runner.model_runner import ModelRunner
from nanoinfer.sampling_params import SamplingParams


@pytest.fixture
def runner(tmp_path):
    return make_runner(tmp_path)


def prompts(n=6, longest=40, seed=0):
    rng = random.Random(seed)
    return [[rng.randrange(60) for _ in range(rng.randint(1, longest))] for _ in range(n)]


# ---- inputs -----------------------------------------------------------------------------------


def test_first_decode_is_at_the_last_position(runner):  # B04
    seq = Sequence(0, [5, 6, 7], block_size=4)
    runner.run(plan("prefill", row(seq, [9], 0, 3)))
    seq.append_token(8)
    inputs = runner.prepare_decode([row(seq, [9], 3, 1, decode=True)])
    assert inputs["token_ids"].tolist() == [8]
    assert inputs["positions"].tolist() == [3]
    assert inputs["context_lens"].tolist() == [4]
    assert inputs["slot_mapping"].tolist() == [9 * 4 + 3]


def test_keys_of_a_chunk_end_with_the_chunk(runner):  # B28
    seq = Sequence(0, range(10, 20), block_size=4)
    first = runner.prepare_prefill([row(seq, [3, 1, 2], 0, 8)])
    assert (first["query_starts"].tolist(), first["context_lens"].tolist()) == ([0, 8], [8])
    second = runner.prepare_prefill([row(seq, [3, 1, 2], 8, 2)])
    assert (second["query_starts"].tolist(), second["context_lens"].tolist()) == ([0, 2], [10])
    assert second["token_ids"].tolist() == [18, 19]
    assert second["positions"].tolist() == [8, 9]
    assert second["slot_mapping"].tolist() == [8, 9]


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
def test_a_mixed_batch_is_laid_out_row_by_row(tmp_path, block_size):
    runner = make_runner(tmp_path, kvcache_block_size=block_size)
    rng = random.Random(1)
    rows = []
    for seq_id, (computed, scheduled) in enumerate([(0, 5), (7, 1), (4, 9), (0, 1), (30, 2)]):
        seq = Sequence(seq_id, [rng.randrange(60) for _ in range(computed + scheduled)], block_size=block_size)
        rows.append(row(seq, rng.sample(range(64), seq.num_blocks), computed, scheduled, decode=scheduled == 1))
    inputs = runner.prepare_prefill(rows)
    at = 0
    for i, r in enumerate(rows):
        end = at + r.num_scheduled
        assert inputs["token_ids"][at:end].tolist() == r.seq.token_ids[r.num_computed :]
        assert inputs["positions"][at:end].tolist() == list(range(r.num_computed, len(r.seq)))
        assert inputs["slot_mapping"][at:end].tolist() == r.slots
        assert inputs["last_indices"][i] == end - 1
        at = end
    assert at == len(inputs["token_ids"])


# ---- one step ---------------------------------------------------------------------------------


def test_ids_are_plain_ints_in_row_order(runner):  # B06
    seqs = [Sequence(i, tokens, GREEDY, 4) for i, tokens in enumerate([[1, 2], [3], [4, 5, 6]])]
    rows = [row(seq, [i], 0, len(seq)) for i, seq in enumerate(seqs)]
    ids = runner.run(plan("prefill", *rows)).token_ids
    assert all(type(token) is int for token in ids)
    json.dumps(ids)
    assert ids == [runner.run(plan("prefill", r)).token_ids[0] for r in rows]
    assert ids[::-1] == runner.run(plan("prefill", *reversed(rows))).token_ids


def test_an_empty_plan_samples_nothing(runner):
    assert runner.run(plan("decode")).token_ids == []


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30], ids=str)
def test_unused_slots_are_never_read(runner, poison):  # B07
    def decode_after(fill):
        for cache in runner.loaded.caches:
            cache.blocks.fill_(fill)
        seq = Sequence(0, range(1, 7), GREEDY, 4)
        runner.run(plan("prefill", row(seq, [5, 2], 0, 6)))
        seq.append_token(3)
        runner.run(plan("decode", row(seq, [5, 2], 6, 1, decode=True)))
        return runner.loaded.last_logits[0].clone()

    assert torch.equal(decode_after(poison), decode_after(0.0))


def test_only_the_rows_slots_are_written(runner):
    for cache in runner.loaded.caches:
        cache.blocks.fill_(7.0)
    r = row(Sequence(0, range(10), block_size=4), [5, 2, 9], 8, 2)
    runner.run(plan("prefill", r))
    for cache in runner.loaded.caches:
        written = (cache.blocks != 7.0).flatten(1).any(1).nonzero().flatten().tolist()
        assert written == sorted(r.slots)


# ---- whole runs -------------------------------------------------------------------------------


def test_cached_prefix_gives_the_same_completion(runner):  # B26
    prompt, feeds = list(range(1, 10)), []
    seqs = [Sequence(i, prompt, GREEDY, 4) for i in range(2)]
    for seq, computed, table in zip(seqs, (0, 8), ([0, 1, 2, 3, 4], [0, 1, 5, 6, 7]), strict=True):
        first = row(seq, table, computed, 9 - computed)
        feeds.append(runner.prepare_prefill([first])["positions"].tolist())
        seq.append_token(runner.run(plan("prefill", first)).token_ids[0])
        while seq.num_completion_tokens < 8:
            seq.append_token(runner.run(plan("decode", row(seq, table, len(seq) - 1, 1, decode=True))).token_ids[0])
    assert feeds == [list(range(9)), [8]]
    assert seqs[0].completion_token_ids == seqs[1].completion_token_ids


MIXED_PARAMS = [
    GREEDY,
    SamplingParams(max_tokens=12, seed=3, ignore_eos=True),
    SamplingParams(max_tokens=9, temperature=0.7, top_k=7, ignore_eos=True),
    SamplingParams(max_tokens=10, top_p=0.8, ignore_eos=True),
    SamplingParams(max_tokens=7, temperature=1.5, seed=3, top_k=20, top_p=0.9, ignore_eos=True),
    GREEDY,
]


@pytest.mark.parametrize("block_size", [1, 3, 4, 16, 256])
def test_outputs_do_not_depend_on_the_block_size(tmp_path, runner, block_size):
    expected = run_all(runner, prompts(), MIXED_PARAMS)
    other = make_runner(tmp_path, kvcache_block_size=block_size, num_kvcache_blocks=-1, max_num_seqs=8)
    assert run_all(other, prompts(), MIXED_PARAMS) == expected


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("settings", [{"max_num_batched_tokens": 8}, {"max_num_seqs": 1}, {"num_kvcache_blocks": 17}])
def test_outputs_do_not_depend_on_chunks_mates_or_preemption(runner, settings, policy):
    phases, chunked, preempted = set(), [], []

    def watch(step):
        phases.add(step.phase)
        preempted.extend(step.preempted)
        chunked.extend(r for r in step.rows if r.chunk and r.chunk[1] > 1)

    expected = run_all(runner, prompts(), MIXED_PARAMS)
    runner.num_kvcache_blocks = settings.get("num_kvcache_blocks", 64)
    others = {name: value for name, value in settings.items() if name != "num_kvcache_blocks"}
    assert run_all(runner, prompts(), MIXED_PARAMS, on_plan=watch, policy=policy, **others) == expected
    assert bool(chunked) == ("max_num_batched_tokens" in settings)
    assert bool(preempted) == ("num_kvcache_blocks" in settings)
    assert ("mixed" in phases) == (policy == "mixed" and "max_num_seqs" not in settings)


def test_outputs_do_not_depend_on_prefix_hits(runner):  # B73: exact in float32
    shared = prompts(1, seed=5)[0] + list(range(20))
    batch = [shared + tail for tail in prompts(5, longest=6, seed=6)]
    hits = []
    warm = [
        run_all(
            runner, [batch[0], *batch], GREEDY, on_plan=lambda step: hits.extend(r.num_cached for r in step.rows), **s
        )
        for s in ({"max_num_seqs": 2}, {"enable_prefix_caching": False})
    ]
    assert any(hits)
    assert warm[0] == warm[1]


def test_the_shipped_model_recalls_through_small_blocks_and_chunks():
    """A wrong table, position or stale prefix would make the answer wrong, not just different."""
    from nanoinfer.engine.tokenizer import Tokenizer

    directory = resolve_model("tiny")
    tokenizer = Tokenizer(directory)
    chat = [{"role": "user", "content": "What is a KV cache?"}]
    _, ids = tokenizer.apply_chat_template(chat)
    answers = set()
    for block_size, budget in ((256, 512), (4, 512), (1, 5)):
        runner = ModelRunner(EngineConfig(kvcache_block_size=block_size, num_kvcache_blocks=512), directory)
        params = SamplingParams(temperature=0, max_tokens=24)
        done = run_all(runner, [ids], params, max_num_batched_tokens=budget, eos=runner.eos_token_ids)
        answers.add(tokenizer.decode(done[0]))
    assert len(answers) == 1
    assert "key" in answers.pop().lower()


# ---- candidates, memory, settings -------------------------------------------------------------


def test_top_candidates_are_probabilities_of_the_last_step(runner):
    seqs = [Sequence(i, [i + 1, 2], SamplingParams(temperature=0.1, top_k=1), 4) for i in range(2)]
    ids = runner.run(plan("prefill", *(row(seq, [i], 0, 2) for i, seq in enumerate(seqs)))).token_ids
    for i in range(2):
        everything = runner.top_candidates(i, 1000)
        assert len(everything) == SMALL["vocab_size"]
        assert sum(p for _, p in everything) == pytest.approx(1.0, abs=1e-4)
        assert [p for _, p in everything] == sorted((p for _, p in everything), reverse=True)
        token, probability = runner.top_candidates(i, 1)[0]
        assert (token, type(token), type(probability)) == (ids[i], int, float)
        assert probability == pytest.approx(runner.loaded.last_logits[i].softmax(0)[token].item())
    seqs[0].append_token(ids[0])
    runner.run(plan("decode", row(seqs[0], [0], 2, 1, decode=True)))
    with pytest.raises(ValueError, match="sequence 1 was not in the last step"):
        runner.top_candidates(1, 3)
    with pytest.raises(ValueError, match="k must be at least 1"):
        runner.top_candidates(0, 0)


def test_close_frees_the_memory_and_may_be_called_twice(runner):
    loaded = runner.loaded
    runner.run(plan("prefill", row(Sequence(0, [1]), [0], 0, 1)))
    alive = [weakref.ref(thing) for thing in (loaded.model, loaded.backend, loaded.caches[0].blocks)]
    del loaded
    runner.close()
    runner.close()
    gc.collect()
    assert [thing() for thing in alive] == [None] * 3
    with pytest.raises(RuntimeError, match="this runner is closed"):
        runner.run(plan("prefill", row(Sequence(0, [1]), [0], 0, 1)))


def test_close_frees_the_cache_although_a_traceback_holds_the_model(runner):
    loaded, cache = runner.loaded, weakref.ref(runner.loaded.caches[0].blocks)
    runner.run(plan("prefill", row(Sequence(0, [1]), [0], 0, 1)))
    runner.close()
    assert cache() is None
    assert loaded.last_logits is None


def test_two_runners_live_side_by_side(tmp_path):
    one = make_runner(tmp_path, kvcache_block_size=4)
    expected = run_all(one, prompts())
    two = make_runner(tmp_path, kvcache_block_size=16, dtype="bfloat16")
    run_all(two, prompts())
    two.close()
    assert run_all(one, prompts()) == expected


def test_auto_means_float32_on_the_cpu(runner):
    if runner.device.type == "cpu":
        assert runner.dtype == torch.float32
    assert runner.vocab_size == 61
    assert runner.eos_token_ids == (60,)
    assert runner.max_position_embeddings == 256


def test_bytes_of_a_block_use_head_dim():  # B76
    model = Qwen3Config.from_dict(SMALL | {"hidden_size": 64, "head_dim": 32, "num_hidden_layers": 3})
    assert kv_cache.bytes_per_block(model, 16, torch.bfloat16) == 16 * (2 * 3 * 2 * 32 * 2)


@pytest.mark.parametrize(
    ("settings", "blocks"),
    [
        ({"num_kvcache_blocks": 5}, 5),
        ({"kvcache_block_size": 16, "max_num_seqs": 3, "max_model_len": 33}, 9),  # nobody could use more
        ({"kvcache_block_size": 256, "max_num_seqs": 3}, 3),  # capped by the model's 256 positions
        ({"kvcache_block_size": 256}, 8),  # capped by the budget below
    ],
)
def test_number_of_blocks_on_the_cpu(monkeypatch, settings, blocks):
    model = Qwen3Config.from_dict(SMALL)
    monkeypatch.setattr(kv_cache, "CPU_KV_BYTES", 8 * kv_cache.bytes_per_block(model, 256, torch.float32) + 1)
    config = EngineConfig(**settings)
    budget = kv_cache.memory_budget(config, torch.device("cpu"), 0, 0)
    assert kv_cache.num_blocks(config, model, torch.float32, budget, Ranks()) == blocks


def test_no_room_for_one_block_gives_the_numbers():
    with pytest.raises(ValueError, match=r"kvcache_block_size=256.* 131072 bytes, 1000 "):
        kv_cache.num_blocks(EngineConfig(), Qwen3Config.from_dict(SMALL), torch.float32, 1000, Ranks())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda"),
        ({"attention_backend": "nope"}, "attention_backend"),
    ],
)
def test_settings_this_build_cannot_serve(tmp_path, settings, named):
    with pytest.raises(ValueError, match=named):
        make_runner(tmp_path, **settings)


def test_cuda_without_cuda_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device"):
        resolve_device("cuda")
    assert resolve_device("auto") == torch.device("cpu")


def test_auto_dtype_on_a_gpu_is_the_checkpoints():
    model = Qwen3Config.from_dict(SMALL)
    assert resolve_dtype("auto", torch.device("cuda"), model) == torch.bfloat16
    assert resolve_dtype("float32", torch.device("cuda"), model) == torch.float32
    with pytest.raises(ValueError, match="float8"):
        resolve_dtype("auto", torch.device("cuda"), Qwen3Config.from_dict(SMALL | {"dtype": "float8"}))


def test_running_leaves_the_process_alone(tmp_path):
    before = (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.get_rng_state(),
        torch.is_inference_mode_enabled(),
    )
    run_all(make_runner(tmp_path), prompts(), MIXED_PARAMS)
    after = torch.get_default_dtype(), torch.get_num_threads(), torch.get_rng_state(), torch.is_inference_mode_enabled()
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])
    assert before[3] is after[3] is False
