"""A rank that fails ends the engine with its own words, soon, and nothing hangs."""

import os
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
from kit.helpers import params, prompt
from kit.processes import within, workers_of
from kit.ranks_in_threads import save_checkpoint

from nanoinfer import LLM
from nanoinfer.parallel import launcher
from nanoinfer.parallel.worker import LOST
from nanoinfer.runner.host_step import HostStep

pytestmark = pytest.mark.timeout(60)

SMALL = {"kvcache_block_size": 4, "num_kvcache_blocks": 64, "device": "cpu"}


def check_closed(llm):
    """Nothing of it is left, and it says so."""
    assert workers_of() == []
    assert "closed" in repr(llm)
    assert llm.runner.closed
    with pytest.raises(RuntimeError, match="this engine is closed; make a new one"):
        llm.generate([[1, 2]])
    with pytest.raises(RuntimeError, match="this engine is closed; make a new one"):
        llm.step()
    llm.close()


def test_a_killed_worker_ends_generate_and_names_itself(make_llm):
    """Rank 2 of 4; the others only notice that it is gone."""
    llm = make_llm(**SMALL, tensor_parallel_size=4)
    victim = llm.runner.team.workers.workers[1]
    killed = []

    def on_step(trace, i):
        if i == 3:
            victim.process.send_signal(signal.SIGKILL)
            killed.append(time.monotonic())

    with pytest.raises(RuntimeError, match=r"rank 2 of tensor_parallel_size=4 .*SIGKILL, exit code -9") as caught:
        llm.generate([prompt(5)], params(200), on_step=on_step, use_tqdm=False)
    assert time.monotonic() - killed[0] < 10
    assert "The engine is closed" in str(caught.value)
    check_closed(llm)


def test_the_rank_that_failed_is_named_and_not_one_that_noticed_it_first():
    def ended(rank, code):
        return SimpleNamespace(rank=rank, process=SimpleNamespace(returncode=code), exit_report=lambda: f"code {code}")

    team = SimpleNamespace(size=4, ended=[ended(3, LOST), ended(1, 1), ended(2, -9)])
    assert "rank 1 of tensor_parallel_size=4 code 1" in str(launcher.Workers.failure(team))


def test_a_worker_killed_between_steps_is_noticed_by_the_next(make_llm):
    llm = make_llm(**SMALL, tensor_parallel_size=2)
    llm.add_request(prompt(5), params(4))
    llm.step()
    os.kill(workers_of()[0], signal.SIGKILL)
    assert within(5, llm.runner.team.workers.lost.is_set)
    with pytest.raises(RuntimeError, match=r"rank 1 .*exit code -9"):
        llm.step()
    check_closed(llm)


def test_a_worker_that_raises_sends_its_traceback(make_llm):
    """Here because it is told to compute what makes no sense."""
    llm = make_llm(**SMALL, tensor_parallel_size=2)
    llm.runner.team.ranks.broadcast(HostStep([0], {"token_ids": np.zeros(1, np.int32)}, None, None))
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="exit code 1") as caught:
        llm.generate([prompt(5)], params(4), use_tqdm=False)
    assert time.monotonic() - began < 10
    assert "Traceback" in str(caught.value)
    assert "KeyError: 'slot_mapping'" in str(caught.value)
    check_closed(llm)


def test_a_worker_that_cannot_start_sends_its_error(make_llm, monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such interpreter >&2\nexit 7\n")
    python.chmod(0o755)
    monkeypatch.setattr(launcher.sys, "executable", str(python))
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"rank 1 .*ended, exit code 7[\s\S]*no such interpreter"):
        make_llm(**SMALL, tensor_parallel_size=2)
    assert time.monotonic() - began < 10
    assert workers_of() == []


def test_a_worker_that_cannot_load_the_model_sends_its_error(make_llm, monkeypatch):
    """The leader waits for it among the ranks that agree on the pool's size."""
    to_dict = launcher.EngineConfig.to_dict
    monkeypatch.setattr(launcher.EngineConfig, "to_dict", lambda config: to_dict(config) | {"dtype": "float16"})
    with pytest.raises(RuntimeError, match="dtype must be one of") as caught:
        make_llm(kvcache_block_size=4, device="cpu", tensor_parallel_size=2)
    assert "rank 1 of tensor_parallel_size=2 ended, exit code 1" in str(caught.value)
    assert workers_of() == []


def test_an_error_of_rank_0_in_a_step_closes_the_engine(make_llm, monkeypatch):
    """The others wait for the rest of that step: they cannot be kept. An interrupt is such an error, if it gets in."""
    llm = make_llm(**SMALL, tensor_parallel_size=2)

    def interrupt(step):
        raise KeyboardInterrupt

    monkeypatch.setattr(llm.runner.loaded, "compute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([prompt(5)], params(4), use_tqdm=False)
    check_closed(llm)


def test_a_bad_checkpoint_is_rank_0s_own_error(tmp_path):
    """As on one device, and the workers are gone."""
    directory = save_checkpoint(tmp_path)
    (directory / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"no model\.safetensors"):
        LLM(directory, **SMALL, tensor_parallel_size=2)
    assert workers_of() == []
