"""Fixtures of the whole suite. This folder is on the import path: tests write `from kit.helpers import ...`."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import pytest

# The shipped model is small: on a busy machine, threads that wait for each other make it ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def torch_sees_a_gpu() -> bool:
    """What torch would say; the driver is asked instead, since the tests of the scheduler need no torch."""
    try:
        return "+cpu" not in version("torch") and ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except (PackageNotFoundError, OSError):
        return False


# Triton reads this when it is first imported, and other packages may import it: so here, before any test module.
if not torch_sees_a_gpu():
    os.environ.setdefault("TRITON_INTERPRET", "1")

if TYPE_CHECKING:
    from nanoinfer import LLM


@pytest.fixture(autouse=True)
def python_handles_sigint() -> Iterator[None]:
    """Also where a shell has started the tests in the background, which makes them ignore Ctrl-C."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.fixture
def make_llm() -> Iterator[Callable[..., LLM]]:
    """Builds engines over the shipped model and closes them when the test ends."""
    from nanoinfer import LLM

    engines: list[LLM] = []

    def make(**settings: Any) -> LLM:
        engines.append(LLM("tiny", **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture(scope="session")
def shared_llm() -> Iterator[LLM]:
    """One engine with small blocks for tests that leave it as they found it: idle."""
    from nanoinfer import LLM

    with LLM("tiny", kvcache_block_size=4, num_kvcache_blocks=64) as engine:
        yield engine


@pytest.fixture
def llm(shared_llm: LLM) -> Iterator[LLM]:
    """The shared engine with an empty prefix cache; checks that it is idle afterwards."""
    shared_llm.reset_prefix_cache()
    yield shared_llm
    leftovers = str(shared_llm.scheduler) if not shared_llm.is_finished() else ""
    while not shared_llm.scheduler.is_finished():
        shared_llm.abort(next(iter(shared_llm.scheduler.sequences)))
    shared_llm.step()
    if shared_llm.core.trace:
        shared_llm.stop_trace()
    assert not leftovers, f"the test left work behind\n{leftovers}"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium, one for all tests."""
    from kit.lab import chromium

    with chromium() as browser:
        yield browser
