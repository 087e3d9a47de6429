"""What the live explorer needs of an engine, and how a step of it can be interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from nanoinfer.sampling_params import SamplingParams
from nanoinfer.trace.trace import OnStep, Trace

Prompt = str | Sequence[int]
Params = SamplingParams | Sequence[SamplingParams] | None


class Engine(Protocol):
    """The methods of `LLM` that drive it step by step."""

    def add_request(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> int: ...

    def step(self) -> list[dict[str, Any]]: ...

    def abort(self, request_id: int) -> dict[str, Any]: ...

    def is_finished(self) -> bool: ...

    def reset_prefix_cache(self) -> None: ...

    def start_trace(self, on_step: OnStep | None = None) -> Trace: ...

    def stop_trace(self) -> Trace: ...

    def top_candidates(self, request_id: int, k: int = 10) -> list[dict[str, Any]]: ...


def prompts_of(prompts: Prompt | Sequence[Prompt] | None) -> list[Prompt]:
    """As a list; a bare string is one prompt."""
    if prompts is None:
        return []
    return [prompts] if isinstance(prompts, str) else list(prompts)  # type: ignore[arg-type]  # checked by the engine


def params_of(prompts: Sequence[Prompt], params: Params) -> list[SamplingParams | None]:
    """One for each prompt. Raises ValueError if there are too many or too few."""
    if params is None or isinstance(params, SamplingParams):
        return [params] * len(prompts)
    if len(params) != len(prompts):
        raise ValueError(f"{len(params)} sampling_params for {len(prompts)} prompts; give one for all, or one for each")
    return list(params)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let an interrupt of the kernel reach work between two cells, where the kernel ignores it otherwise."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
