"""`nanoinfer bench` as a user runs it, on the shipped model with small numbers."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from nanoinfer import SamplingParams
from nanoinfer.bench import engines, report, run
from nanoinfer.bench.measure import works_b
from nanoinfer.bench.profiler import PROFILED_STEPS, profile_decode
from nanoinfer.bench.startup import measure_startup
from nanoinfer.cli import main
from nanoinfer.engine.checkpoint import resolve_model

SMALL = ["bench", "--input-len", "24", "--output-len", "6", "--repeat", "2", "--kvcache-block-size", "16"]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """One run with everything but the start: evidence, printed text, folder."""
    folder = tmp_path_factory.mktemp("bench")
    files = ["--out", str(folder / "b.json"), "--plot", str(folder / "b.png"), "--profile", str(folder / "t.json")]
    options = ["--requests", "1,3", "--temperature", "0", "--record", "--against", "transformers", *files]
    with pytest.MonkeyPatch.context() as patch:
        text = []
        patch.setattr("builtins.print", lambda *parts, sep=" ", **_: text.append(sep.join(map(str, parts))))
        assert main([*SMALL, *options]) == 0
    return json.loads((folder / "b.json").read_text()), "\n".join(text), folder


def test_evidence_says_what_was_run_on_what(whole_run):
    evidence, _, _ = whole_run
    assert evidence["command"].startswith("nanoinfer bench --input-len 24")
    assert {"python", "torch", "triton", "flash-attn", "transformers", "nanoinfer"} <= evidence["versions"].keys()
    assert evidence["machine"]["device"] == report.processor()
    assert (evidence["seed"], evidence["model"], evidence["temperature"]) == (0, "tiny", 0)
    assert evidence["engine"]["kvcache_block_size"] == 16
    assert evidence["bandwidth"]["bytes_per_second"] > 0


def test_evidence_holds_every_repetition_and_its_arithmetic(whole_run):
    evidence, _, _ = whole_run
    assert [case["requests"] for case in evidence["cases"]] == [1, 3]
    for case in evidence["cases"]:
        assert case["prompt_tokens"] == 24 * case["requests"]
        assert case["output_tokens"] == 6 * case["requests"]
        assert list(case["engines"]) == ["nanoinfer", "nanoinfer, recording", "transformers"]
        for runs in case["engines"].values():
            assert runs["tokens"] == [case["output_tokens"]] * 2
            for seconds, speed in zip(runs["seconds"], runs["tokens_per_second"], strict=True):
                assert speed == pytest.approx(case["output_tokens"] / seconds)
        ours, theirs = (case["engines"][name]["median_tokens_per_second"] for name in ("nanoinfer", "transformers"))
        assert case["against"]["ratio"] == pytest.approx(ours / theirs)
        assert "recording_cost_percent" in case


def test_floor_in_the_evidence_is_the_formula(whole_run):
    evidence, _, _ = whole_run
    case, sizes = evidence["cases"][1], evidence["model_bytes"]
    contexts = 3 * sum(range(25, 30))  # five decode steps after a prompt of 24
    floor = (5 * sizes["weights"] + contexts * sizes["kv_per_token"]) / evidence["bandwidth"]["bytes_per_second"]
    assert case["floor"]["seconds"] == pytest.approx(floor)
    assert case["floor"]["tokens_per_second"] == pytest.approx(18 / floor)


def test_transformers_does_the_same_work(whole_run):
    evidence, _, _ = whole_run
    assert [case["against"] | {"ratio": 0} for case in evidence["cases"]] == [
        {"peer": "transformers", "ratio": 0, "equal_outputs": 1},
        {"peer": "transformers", "ratio": 0, "equal_outputs": 3},
    ]


def test_printed_table(whole_run):
    evidence, text, folder = whole_run
    rows = [line.split() for line in text.splitlines()]
    assert ["B", "3", "72", "18", "nanoinfer"] in [row[:5] for row in rows]
    median = f"{evidence['cases'][1]['engines']['transformers']['median_tokens_per_second']:,.1f}"
    assert median in next(row for row in reversed(rows) if row[:1] == ["transformers"])
    assert "recording costs" in text
    assert "byte floor: a decode step reads" in text
    assert f"evidence: {folder / 'b.json'}" in text


def test_plot_and_chrome_trace_are_written(whole_run):
    _, _, folder = whole_run
    assert (folder / "b.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "t.json").read_text())["traceEvents"]


def test_profile_finds_the_groups(whole_run):
    evidence, text, _ = whole_run
    profiled = evidence["profile"]
    groups = {entry["group"]: entry for entry in profiled["groups"]}
    assert {"attention", "matmul", "other", "sampling"} <= groups.keys()
    assert sum(entry["share"] for entry in groups.values()) == pytest.approx(1)
    assert sum(entry["microseconds"] for entry in groups.values()) <= profiled["wall_microseconds"]
    assert profiled["idle"] is None
    assert "outside operators" in text


def test_the_profiled_engine_is_idle_afterwards(make_llm):
    llm = make_llm()
    (work,) = works_b(0, [2], 8, 3)
    profiled = profile_decode(llm, work, 0.6, None)
    assert (profiled["requests"], profiled["steps"]) == (2, PROFILED_STEPS)
    assert llm.is_finished()


def test_no_prefix_is_cached_between_repetitions(make_llm):
    llm = make_llm(kvcache_block_size=4)
    (work,) = works_b(0, [3], 24, 4)
    params = SamplingParams(temperature=0.6, max_tokens=4, ignore_eos=True)

    def cached(shift: int) -> int:
        trace = llm.generate(work.shifted(shift, llm.config.vocab_size), params, record=True, use_tqdm=False)
        return sum(row.num_cached for step in trace.steps for row in step.rows)

    assert [cached(shift) for shift in range(4)] == [0, 0, 0, 0]
    assert cached(3) > 0  # the same prompts again: the trace does see hits


def test_transformers_peer_pads_and_cuts_uneven_requests(make_llm):
    llm = make_llm(max_num_seqs=2)
    _, question = llm.tokenizer.apply_chat_template([{"role": "user", "content": "What is 7 plus 5?"}])
    prompts, wanted = [[5, 6, 7], list(range(40, 60)), question], [9, 2, 24]
    ours = engines.generate_with(llm, 0, record=False)(prompts, wanted)
    assert llm.config.eos[0] in ours[2][:-1]  # and goes on
    settings = engines.PeerSettings(resolve_model("tiny"), llm.config, 0.0)
    peer = engines.make_peer("transformers", settings)
    assert peer.generate(prompts, wanted) == ours
    peer.close()


class FakeVllm:
    """What the peer uses of vLLM's offline interface, and nothing else."""

    class SamplingParams:
        def __init__(self, *, temperature, max_tokens, ignore_eos, detokenize):
            assert ignore_eos
            self.max_tokens, self.detokenize = max_tokens, detokenize

    class LLM:
        def __init__(self, **settings):
            FakeVllm.settings = settings

        def generate(self, prompts, params, use_tqdm):
            assert all(p.detokenize != FakeVllm.settings["skip_tokenizer_init"] for p in params)
            return [fake_output(prompt, p.max_tokens) for prompt, p in zip(prompts, params, strict=True)]


def fake_output(prompt, count):
    return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tuple(prompt["prompt_token_ids"][:1] * count))])


def test_vllm_peer_hands_over_prompts_lengths_and_limits(make_llm, monkeypatch):
    llm = make_llm(max_num_seqs=7, max_num_batched_tokens=640)
    monkeypatch.setattr(engines, "import_module", {"vllm": FakeVllm}.__getitem__)
    peer = engines.make_peer("vllm", engines.PeerSettings(resolve_model("tiny"), llm.config, 0.6))
    assert peer.generate([[5, 6], [8]], [3, 1]) == [[5, 5, 5], [8]]
    assert (FakeVllm.settings["max_num_seqs"], FakeVllm.settings["max_num_batched_tokens"]) == (7, 640)
    assert FakeVllm.settings["skip_tokenizer_init"] is False


@pytest.mark.slow
def test_start_is_measured_in_a_process_with_empty_caches(monkeypatch):
    seen = {}
    original = subprocess.run

    def spy(command, env, **more):
        seen.update({name: env[name] for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")})
        assert not any(os.path.exists(folder) for folder in seen.values())
        return original(command, env=env, **more)

    monkeypatch.setattr(subprocess, "run", spy)
    times = measure_startup("tiny", {"num_kvcache_blocks": 4})
    assert times["total"] == pytest.approx(times["construction"] + times["first_token"])
    assert all(seconds > 0 for seconds in times.values())
    with pytest.raises(RuntimeError, match=r"fresh process failed: .*no-such-model"):
        measure_startup("no-such-model", {})


def test_random_weights_from_a_shape(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_bytes((resolve_model("tiny") / "config.json").read_bytes())
    monkeypatch.setattr(run, "SHAPES", tmp_path)
    out = tmp_path / "b.json"
    assert main([*SMALL, "--shape", "small", "--requests", "2", "--bandwidth", "0.5", "--out", str(out)]) == 0
    evidence = json.loads(out.read_text())
    assert (evidence["model"], evidence["engine"]["model"]) == ("small", "small")
    assert evidence["engine"]["load_format"] == "dummy"
    assert evidence["bandwidth"] == {"bytes_per_second": 0.5e12, "source": "given"}
    assert "small on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--work", "C"], "--work must be A or B, got 'C'"),
        (["--requests", "1,two"], "--requests must be numbers with commas between them"),
        (["--requests", "4,0"], "--requests must be at least 1, got 0"),
        (["--output-len", "0"], "--output-len must be at least 1, got 0"),
        (["--work", "A", "--requests", "4"], "--requests: work A has its own sizes"),
        (["--repeat", "0"], "--repeat must be at least 1, got 0"),
        (["--against", "llama"], "--against must be one of transformers, vllm, got 'llama'"),
        (["--shape", "qwen9"], "--shape must be one of qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, got 'qwen9'"),
        (["--bandwidth", "0"], "--bandwidth must be a finite number above 0 TB/s, got 0.0"),
        (["--bandwidth", "nan", "--requests", "1", "--input-len", "4", "--output-len", "2"], "TB/s, got nan"),
        (["--bandwidth", "inf", "--requests", "1", "--input-len", "4", "--output-len", "2"], "TB/s, got inf"),
        (["--input-len", "2040", "--output-len", "20"], "the longest request has 2060 tokens"),
        (["--out", "no-such-folder/b.json"], "no folder no-such-folder"),
        (["--plot", "b.txt"], "--plot must end in one of ."),
        (["--plot", "b"], "--plot must end in"),
        (["--backend", "abacus"], "abacus"),
    ],
)
def test_errors_are_one_line_and_exit_with_one(options, message, capsys):
    assert main(["bench", *options]) == 1
    error = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert error[-1].startswith("nanoinfer: ")
    assert message in error[-1]


def test_a_peer_that_is_not_installed_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert main(["bench", "--against", "vllm"]) == 1
    assert "vllm is not installed here" in (error := capsys.readouterr().err)
    assert "pip install vllm" in error


def test_a_peer_that_cannot_be_imported_is_one_line(make_llm, monkeypatch):
    def broken(name):
        raise ImportError("libcudart.so.99: cannot open shared object file")

    monkeypatch.setattr(engines, "import_module", broken)
    settings = engines.PeerSettings(resolve_model("tiny"), make_llm().config, 0.6)
    with pytest.raises(RuntimeError, match=r"vllm is installed but cannot be imported: libcudart.so.99"):
        engines.make_peer("vllm", settings)


def test_help_has_an_example_and_loads_no_torch():
    code = "import sys\nfrom nanoinfer.cli import main\ntry: main(sys.argv[1:])\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "bench", "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "example: nanoinfer bench --shape qwen3-0.6b" in " ".join(done.stdout.split())
    assert done.stdout.splitlines()[-1] == "False"


def test_wrong_usage_exits_with_two(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["bench", "--model", "tiny", "--shape", "qwen3-8b"])
    assert exit_info.value.code == 2
    assert "not allowed with" in capsys.readouterr().err.splitlines()[-1]
