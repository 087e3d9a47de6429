"""The command line: what it prints, what it writes, and its exit codes."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kit.helpers import POLICIES

from nanoinfer import SamplingParams, demo, simulate
from nanoinfer.cli import main


@pytest.fixture
def trace_file(tmp_path):
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    trace = simulate([list(range(8)), list(range(100, 108))], params, kvcache_block_size=4, num_kvcache_blocks=5)
    path = tmp_path / "run.jsonl"
    trace.save(path)
    return path


@pytest.mark.parametrize("command", [[], ["demo"], ["generate"], ["trace"], ["bench"], ["lab"]])
def test_help_exits_with_zero_and_shows_usage(command, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main([*command, "--help"])
    assert exit_info.value.code == 0
    assert " ".join(["usage: nanoinfer", *command]) in capsys.readouterr().out


def test_wrong_usage_exits_with_two():
    with pytest.raises(SystemExit) as exit_info:
        main(["trace"])
    assert exit_info.value.code == 2


def test_trace_prints_a_summary(trace_file, capsys):
    assert main(["trace", str(trace_file)]) == 0
    out = capsys.readouterr().out
    assert "16 prompt and 10 output tokens" in out
    assert "preemptions          1" in out


def test_trace_explains_one_step(trace_file, capsys):
    assert main(["trace", str(trace_file), "--step", "1"]) == 0
    assert "nobody ran behind it, so it preempted itself" in capsys.readouterr().out


def test_trace_timeline_has_a_line_per_step(trace_file, capsys):
    assert main(["trace", str(trace_file), "--timeline"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["step", "phase", "tokens"]
    assert [line.split()[0] for line in lines[1:]] == [str(i) for i in range(len(lines) - 1)]
    assert "NO_BLOCKS needed=3 free=2" in "\n".join(lines)


def test_trace_exports_to_perfetto(trace_file, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert main(["trace", str(trace_file), "--perfetto", str(out)]) == 0
    assert json.loads(out.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "missing.jsonl"], "missing.jsonl"),
        (["trace", "{file}", "--step", "99"], "step 99 is outside this trace"),
        (["generate", "--max-tokens", "0", "hello"], "max_tokens must be at least 1"),
        (["generate", "--model", "no/such/folder", "hello"], "no/such/folder"),
        (["demo", "--policy", "fair", "--out", "{file}.new"], f"policy must be one of {', '.join(POLICIES)}"),
        (["lab", "--dir", "no-such-folder"], "no-such-folder"),
        (["demo", "--out", "no-such-folder/x.jsonl"], "no folder no-such-folder"),
        (["generate", "--trace", "no-such-folder/x.jsonl", "hello"], "no folder no-such-folder"),
    ],
)
def test_errors_are_one_line_and_exit_with_one(arguments, message, trace_file, capsys):
    assert main([argument.format(file=trace_file) for argument in arguments]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("nanoinfer: ")
    assert message in error


def test_lab_without_jupyterlab_names_the_pip_of_this_python(monkeypatch, capsys):
    """Any other pip would look for the package on the internet."""
    monkeypatch.setattr("nanoinfer.extras.find_spec", lambda name: None)
    assert main(["lab"]) == 1
    assert f'{sys.executable} -m pip install "nanoinfer[notebooks]"' in capsys.readouterr().err


@pytest.fixture
def lab_command(monkeypatch):
    """What `nanoinfer lab` would start."""
    started = []
    monkeypatch.setattr("nanoinfer.extras.find_spec", lambda name: name)
    monkeypatch.setattr("nanoinfer.cli.subprocess.call", lambda command: started.extend(command) or 0)
    return started


def test_lab_serves_the_pages_that_the_notebooks_link_to(lab_command):
    """JupyterLab follows no link out of its root."""
    assert main(["lab", "--", "--no-browser"]) == 0
    options = dict(option.split("=") for option in lab_command if "=" in option)
    root = Path(options["--ServerApp.root_dir"])
    opened = root / options["--LabApp.default_url"].removeprefix("/lab/tree/")
    assert opened.is_file()
    assert (opened.parent / "../docs/why.md").resolve().is_relative_to(root)
    assert lab_command[-1] == "--no-browser"


def test_lab_opens_another_folder(lab_command, tmp_path):
    assert main(["lab", "--dir", str(tmp_path)]) == 0
    assert lab_command[-1] == str(tmp_path)


def test_demo_shows_the_run_and_writes_its_trace(tmp_path, capsys):
    out = tmp_path / "demo.jsonl.gz"
    assert main(["demo", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "7 plus 5 is 12." in printed
    assert "preempted 3 (tail, 58 tokens lost)" in printed
    assert main(["trace", str(out), "--step", "0"]) == 0
    assert "chunk 1 of 2" in capsys.readouterr().out


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("blocks", [14, 20])
def test_the_simulated_demo_decides_as_the_one_with_the_model(policy, blocks):
    settings = demo.SETTINGS | {"policy": policy, "num_kvcache_blocks": blocks}
    model, simulated = demo.answered(settings), demo.simulated(settings)
    assert len(model.steps) == len(simulated.steps)
    assert any(step.preempted for step in model.steps)
    for name in ("phase", "stop", "decode_stop", "preempted", "waiting", "running", "free_blocks"):
        assert [getattr(s, name) for s in simulated.steps] == [getattr(s, name) for s in model.steps]
    rows = [[[replace(row, token_id=None) for row in step.rows] for step in run.steps] for run in (model, simulated)]
    assert rows[0] == rows[1]


def test_generate_answers_a_chat_as_json(tmp_path, capsys):
    trace = tmp_path / "run.jsonl"
    arguments = ["generate", "--chat", "--temperature", "0", "--json", "--trace", str(trace), "What is 7 plus 5?"]
    assert main(arguments) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["text"] == "7 plus 5 is 12."
    assert output["finish_reason"] == "eos"
    assert trace.exists()


def test_generate_reads_prompts_from_stdin():
    command = [sys.executable, "-m", "nanoinfer", "generate", "--chat", "--temperature", "0"]
    result = subprocess.run(
        command, input="What is 7 plus 5?\n\nWhat is 2 plus 3?\n", capture_output=True, text=True, check=True
    )
    assert result.stdout == "--- What is 7 plus 5?\n7 plus 5 is 12.\n--- What is 2 plus 3?\n2 plus 3 is 5.\n"


def test_interrupt_exits_with_130():
    command = [sys.executable, "-m", "nanoinfer", "generate"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)  # it waits for prompts on stdin
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error
