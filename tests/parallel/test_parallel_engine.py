"""An engine whose ranks are processes gives what one device gives, and cleans up after itself."""

import gc
import os
import signal
import subprocess
import sys
import textwrap

import pytest
import torch
from kit.helpers import prompt
from kit.processes import alive, open_sockets, within, workers_of

from nanoinfer import LLM, SamplingParams

pytestmark = pytest.mark.timeout(90)

SMALL = {"kvcache_block_size": 4, "num_kvcache_blocks": 24, "max_num_batched_tokens": 24, "device": "cpu"}
PROMPTS = [prompt(30, 0), prompt(9, 1), [*prompt(9, 1), 7, 7], prompt(40, 2), prompt(3, 3)]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=14, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=11, max_tokens=9, ignore_eos=True),
    SamplingParams(temperature=1.0, top_k=20, top_p=0.9, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=0, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=1.2, max_tokens=20, ignore_eos=True),
]
VARIANTS = {"plain": {}, "overlapped, mixed": {"overlap": True, "policy": "mixed"}}


@pytest.fixture(scope="module")
def pairs():
    """For each variant an engine on one device and one on two: all four alive at once."""
    engines = {
        name: [LLM("tiny", **SMALL, **more, tensor_parallel_size=size) for size in (1, 2)]
        for name, more in VARIANTS.items()
    }
    yield engines
    for pair in engines.values():
        for llm in pair:
            llm.close()


@pytest.fixture
def pair(pairs):
    for llm in pairs["plain"]:
        llm.reset_prefix_cache()
    return pairs["plain"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_and_decisions_are_those_of_one_device(pairs, variant):
    """B66, two engines at once. With a pool so small that prompts are cut, blocks shared and sequences preempted."""
    one, two = pairs[variant]
    expected, trace = (llm.generate(PROMPTS, PARAMS, record=True, use_tqdm=False) for llm in (one, two))
    assert [o["token_ids"] for o in expected.outputs] == [o["token_ids"] for o in trace.outputs]
    assert list(expected.events) == list(trace.events)
    assert any(step.preempted for step in trace.steps)
    assert any(row.num_cached for step in trace.steps for row in step.rows)
    assert any(row.chunk and row.chunk[1] > 1 for step in trace.steps for row in step.rows)
    assert trace.header.config["tensor_parallel_size"] == 2


def test_top_candidates_are_those_of_one_device(pair):
    found = []
    for llm in pair:
        request = llm.add_request(prompt(6, 4), SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
        llm.step()
        found.append(llm.top_candidates(request, 5))
        llm.abort(request)
    for one, two in zip(*found, strict=True):
        assert one["token_id"] == two["token_id"]
        assert one["probability"] == pytest.approx(two["probability"], abs=1e-5)


def test_no_default_group_and_no_variable_is_left_behind(pairs):
    """B66: what is process-wide stays the user's."""
    assert len(workers_of()) == 2
    assert not torch.distributed.is_initialized()
    assert not {name for name in os.environ if name.startswith(("TORCH_NCCL", "MASTER_", "NCCL_"))}


def test_no_message_is_under_way_between_steps(pair):
    """A torch profiler that began in a step and ended after it would be written to when it is gone."""
    two = pair[1]
    two.add_request(prompt(6, 4), SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    while not two.is_finished():
        two.step()
        assert two.runner.team.ranks.sending == []


def test_ctrl_c_in_a_step_waits_for_its_end_and_the_ranks_stay_in_step(pair, monkeypatch):
    one, two = pair
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    expected = [o["token_ids"] for o in one.generate(PROMPTS, PARAMS, use_tqdm=False)]
    compute, calls = two.runner.loaded.compute, []

    def interrupted(step):
        calls.append(step)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return compute(step)

    with monkeypatch.context() as patch:
        patch.setattr(two.runner.loaded, "compute", interrupted)
        with pytest.raises(KeyboardInterrupt):
            two.generate(PROMPTS, PARAMS, use_tqdm=False)
    signal.signal(signal.SIGINT, previous)
    assert len(calls) == 3
    requests = [two.add_request(ids, p) for ids, p in zip(PROMPTS, PARAMS, strict=True)]
    done = {}
    while not two.is_finished():
        done |= {output["request_id"]: output["token_ids"] for output in two.step()}
    greedy = [i for i, p in enumerate(PARAMS) if p.temperature == 0 or p.seed is not None]
    assert [done[requests[i]] for i in greedy] == [expected[i] for i in greedy]


def test_engines_come_and_go_and_leave_nothing(pairs):
    """B86: no process, no port, no connection, no file in shared memory, whichever way an engine ends."""
    pairs["plain"][1].close()
    pairs["plain"][1].close()  # the second does nothing
    gc.collect()
    others, sockets, shared = workers_of(), open_sockets(), set(os.listdir("/dev/shm"))
    for end in ("close", "del", "close"):
        llm = LLM("tiny", **SMALL, tensor_parallel_size=2)
        assert len(workers_of()) == len(others) + 1
        assert llm.generate([[1, 2]], SamplingParams(max_tokens=2), use_tqdm=False)
        if end == "close":
            llm.close()
            with pytest.raises(RuntimeError, match="closed"):
                llm.generate([[1, 2]])
        del llm
        gc.collect()
        assert workers_of() == others
        assert within(5, lambda: open_sockets() <= sockets), "a connection stays open"
    assert set(os.listdir("/dev/shm")) == shared


# ---- other programs -----------------------------------------------------------------------

SCRIPT = """
import os, sys
from nanoinfer import LLM, SamplingParams
llm = LLM("tiny", kvcache_block_size=4, num_kvcache_blocks=24, device="cpu", tensor_parallel_size=2)
out = llm.generate([[1, 2, 3]], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True), use_tqdm=False)
print(out[0]["token_ids"], flush=True)
"""
EXPECTED = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


def write(path, text):
    path.write_text(textwrap.dedent(text))
    return str(path)


def test_an_unguarded_script_runs_and_exits_cleanly_without_close(pairs, tmp_path):
    """B67: the workers do not run the script again. The folder it runs in hides nothing."""
    here = tmp_path / "here"
    (here / "nanoinfer").mkdir(parents=True)
    write(here / "nanoinfer" / "__init__.py", "raise ImportError")
    script = write(tmp_path / "script.py", SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=here, timeout=60)
    expected = pairs["plain"][0].generate([[1, 2, 3]], EXPECTED, use_tqdm=False)[0]["token_ids"]
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(expected), "")


def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = write(tmp_path / "script.py", SCRIPT + "input()")
    parent = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    parent.stdout.readline()
    workers = workers_of(parent.pid)
    assert len(workers) == 1
    parent.kill()
    parent.communicate()
    assert within(10, lambda: not any(map(alive, workers)))


def test_ctrl_c_in_a_terminal_ends_the_batch_and_not_the_workers(tmp_path):
    """A terminal sends it to the whole process group."""
    script = write(
        tmp_path / "script.py",
        SCRIPT
        + """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
def on_step(trace, i):
    print(i, flush=True)
try:
    llm.generate([[1, 2]], SamplingParams(max_tokens=60, ignore_eos=True), on_step=on_step, use_tqdm=False)
except KeyboardInterrupt:
    again = llm.generate([[1, 2, 3]], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True), use_tqdm=False)
    print("again", again[0]["token_ids"] == out[0]["token_ids"])
""",
    )
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    while parent.stdout.readline() != "5\n":
        continue
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.communicate(timeout=30)[0].splitlines()[-1] == "again True"
    assert parent.returncode == 0


@pytest.mark.slow
def test_torchrun(pairs, tmp_path):
    """Rank 0 goes on, rank 1 never leaves the constructor, and a second engine is refused."""
    script = write(
        tmp_path / "script.py",
        SCRIPT
        + """
assert os.environ["RANK"] == "0"
llm.close()
try:
    LLM("tiny", device="cpu", tensor_parallel_size=2)
except RuntimeError as error:
    print(error)
""",
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=80)
    assert done.returncode == 0, done.stderr
    expected = pairs["plain"][0].generate([[1, 2, 3]], EXPECTED, use_tqdm=False)[0]["token_ids"]
    first, second = done.stdout.splitlines()
    assert first == str(expected)
    assert "start the script anew" in second
