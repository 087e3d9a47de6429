"""The parts of the benchmark that need no model: works, byte floor, timing, groups, gaps, tables."""

import argparse
import json
import shlex

import pytest

from nanoinfer import EngineConfig
from nanoinfer.bench import report, run
from nanoinfer.bench.measure import Runs, Work, recording_cost, time_runs, work_a, works_b
from nanoinfer.bench.options import add_arguments
from nanoinfer.bench.profiler import Entry, Gaps, by_group, group_of, idle_gaps
from nanoinfer.bench.report import table
from nanoinfer.bench.roofline import (
    Bandwidth,
    ModelBytes,
    contexts_read,
    decode_steps,
    floor_seconds,
    measure_bandwidth,
    model_bytes,
)
from nanoinfer.models.config import load_config

PARAMETERS = {"qwen3-0.6b": 596_049_920, "qwen3-1.7b": 1_720_574_976, "qwen3-4b": 4_022_468_096}
PARAMETERS_8B = 8_190_735_360


def test_work_a_has_the_published_counts():
    work = work_a(0)
    assert len(work.prompts) == len(work.output_lens) == 256
    assert sum(work.prompt_lens) == 142_827
    assert sum(work.output_lens) == 133_966
    assert work.longest <= 2048
    assert work_a(1).prompts != work.prompts


def test_work_b_has_equal_lengths_and_no_prompt_twice():
    works = works_b(0, [1, 3], 20, 7)
    assert [len(work.prompts) for work in works] == [1, 3]
    assert {n for work in works for n in work.prompt_lens} == {20}
    assert {n for work in works for n in work.output_lens} == {7}
    assert len({tuple(prompt) for work in works for prompt in work.prompts}) == 4


def test_shift_keeps_lengths_and_changes_every_id():
    work = Work("B", [[0, 9, 10_000], [4]], [1, 1])
    assert work.shifted(2, 4096) == [[2, 11, (10_000 + 2) % 4096], [6]]
    for a, b in zip(work.shifted(1, 4096), work.shifted(2, 4096), strict=True):
        assert all(x != y for x, y in zip(a, b, strict=True))


def test_floor_by_hand():
    # Outputs of 3 and 2 tokens: 2 + 1 decode rows. Contexts: 11 and 12 of the first, 21 of the second.
    assert contexts_read([10, 20], [3, 2]) == 11 + 12 + 21
    assert decode_steps([3, 2], max_num_seqs=2) == 2
    assert decode_steps([3, 2], max_num_seqs=1) == 3
    seconds = floor_seconds([10, 20], [3, 2], 2, ModelBytes(weights=1000, kv_per_token=5), 100.0)
    assert seconds == pytest.approx((2 * 1000 + 44 * 5) / 100)


def test_devices_share_the_bytes_and_one_token_has_no_decode_floor():
    work, model, bandwidth = Work("B", [[1] * 10], [3]), ModelBytes(1000, 5), Bandwidth(100.0, "given")
    floors = [
        report.case(work, {"nanoinfer": Runs(3, [1.0])}, model, bandwidth, 8, devices)["floor"]["seconds"]
        for devices in (1, 2)
    ]
    assert floors == [pytest.approx((2 * 1000 + 23 * 5) / 100), pytest.approx((2 * 1000 + 23 * 5) / 200)]
    prefill_only = report.case(Work("B", [[1]], [1]), {"nanoinfer": Runs(1, [1.0])}, model, bandwidth, 8, 1)
    assert prefill_only["floor"] == {"seconds": 0, "tokens_per_second": None}


def test_bytes_of_the_published_shapes():
    for name, parameters in PARAMETERS.items():
        config = load_config(run.SHAPES / name)
        assert model_bytes(config, 2).weights == 2 * parameters, name
        assert config.tie_word_embeddings
    config = load_config(run.SHAPES / "qwen3-8b")
    assert model_bytes(config, 2).weights == 2 * (PARAMETERS_8B - config.vocab_size * config.hidden_size)
    assert model_bytes(config, 2).kv_per_token == 2 * 36 * 8 * 128 * 2
    assert {path.name for path in run.SHAPES.iterdir()} == {*PARAMETERS, "qwen3-8b"}


def test_bandwidth_is_measured_and_says_how():
    bandwidth = measure_bandwidth("cpu")
    assert 1e8 < bandwidth.bytes_per_second < 1e13
    assert bandwidth.source == "measured, numpy copy"


def test_runs_take_turns_and_the_warm_up_is_not_timed():
    calls = []

    def engine(name):
        def generate(prompts, output_lens):
            calls.append((name, prompts[0][0]))
            return [[7] * n for n in output_lens]

        return generate

    ticks = []
    work = Work("B", [[100, 5]], [3])
    runs = time_runs({"a": engine("a"), "b": engine("b")}, work, 4096, 2, lambda: ticks.append(1))
    assert calls == [("a", 100), ("b", 103), ("a", 101), ("b", 104), ("a", 102), ("b", 105)]
    assert len(ticks) == 6
    assert [len(r.seconds) for r in runs.values()] == [2, 2]
    assert runs["a"].warm_up == [[7, 7, 7]]


def test_an_engine_that_gives_too_few_tokens_is_refused():
    with pytest.raises(RuntimeError, match="lazy gave 2 tokens for request 1, which wants 3"):
        time_runs({"lazy": lambda p, n: [[7] * 3, [7] * 2]}, Work("B", [[1], [2]], [3, 3]), 9, 1, list)


def test_speed_and_recording_cost_by_hand():
    plain, recorded = Runs(100, [1.0, 2.0, 4.0]), Runs(100, [1.1, 2.4, 4.4])
    assert plain.speeds == [100, 50, 25]
    assert plain.to_dict()["median_tokens_per_second"] == 50
    assert recording_cost(plain, recorded) == pytest.approx(10)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("void flash_fwd_splitkv_kernel<...>", "attention"),
        ("store_kvcache_kernel", "attention"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("nvjet_tst_128x256_64x4", "matmul"),
        ("void cublasLt::splitKreduce_kernel", "matmul"),
        ("aten::addmm", "matmul"),
        ("aten::mm", "matmul"),
        ("aten::mul", "other"),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "norm"),
        ("rotary_kernel", "rotary"),
        ("aten::argmax", "sampling"),
        ("ncclDevKernel_AllReduce_Sum_bf16", "communication"),
        ("Memcpy DtoH", "other"),
    ],
)
def test_groups_by_name(name, group):
    assert group_of(name) == group


def test_group_table_by_hand():
    entries = [Entry("aten::mm", 4, 30.0), Entry("aten::linear", 2, 30.0), Entry("aten::copy_", 2, 20.0)]
    assert by_group(entries, steps=2) == [
        {"group": "matmul", "microseconds": 30.0, "calls": 3.0, "share": 0.75},
        {"group": "other", "microseconds": 10.0, "calls": 1.0, "share": 0.25},
    ]


def test_idle_gaps_by_hand():
    # 0-10 and 5-12 overlap; then nothing until 15; 15-20 holds 16-17; nothing until 21.
    assert idle_gaps([(15, 20), (0, 10), (16, 17), (5, 12), (21, 22)]) == Gaps(idle=4, count=2, longest=3, span=22)
    assert idle_gaps([]) == Gaps(0, 0, 0, 0)


def test_table_is_aligned():
    assert list(table(("name", "n"), [["a", "10"], ["long one", "5"]])) == [
        "name       n",
        "a         10",
        "long one   5",
    ]


def settings_from(command_line):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run.engine_settings(parser.parse_args(shlex.split(command_line)), [Work("B", [[1] * 5000], [10])])


def test_settings_are_passed_only_when_given():
    settings = settings_from("--model tiny --seed 3 --no-overlap")
    assert settings == {"overlap": False, "seed": 3, "load_format": "auto", "max_model_len": 5010}


def test_every_option_of_the_engine_reaches_its_setting():
    given = settings_from(
        "--backend torch --dtype float32 --device cpu --tensor-parallel-size 2 --max-num-seqs 3 --overlap "
        "--max-num-batched-tokens 64 --kvcache-block-size 16 --gpu-memory-utilization 0.5 --enforce-eager"
    )
    expected = {
        "attention_backend": "torch",
        "dtype": "float32",
        "device": "cpu",
        "tensor_parallel_size": 2,
        "max_num_seqs": 3,
        "overlap": True,
        "max_num_batched_tokens": 64,
        "kvcache_block_size": 16,
        "gpu_memory_utilization": 0.5,
        "enforce_eager": True,
    }
    assert given == expected | {"seed": 0, "load_format": "auto", "max_model_len": 5010}
    assert EngineConfig(**given).attention_backend == "torch"


def test_shapes_are_published_configs():
    for folder in run.SHAPES.iterdir():
        raw = json.loads((folder / "config.json").read_text())
        assert (raw["vocab_size"], raw["head_dim"], raw["rope_theta"]) == (151_936, 128, 1_000_000)
        assert raw["max_position_embeddings"] == 40_960
        assert not (folder / "tokenizer.json").exists()
