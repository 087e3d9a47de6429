"""The engine a user talks to: text or ids in, text and a trace out.

It joins three parts that do not know each other: the tokenizer, the torch-free `EngineCore` that
decides, and the `ModelRunner` that computes. It makes no scheduling decision of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import torch
from tqdm.auto import tqdm

from nanoinfer.config import EngineConfig
from nanoinfer.core.admission import check_request, check_token_ids, one_per_prompt
from nanoinfer.core.block_manager import BlockManager
from nanoinfer.core.engine_core import EngineCore
from nanoinfer.core.overlap.loop import OverlappedCore
from nanoinfer.core.overlap.scheduler import overlapped, why_not
from nanoinfer.core.scheduler import Scheduler, policy_name, scheduler_class
from nanoinfer.core.sequence import Sequence as Request
from nanoinfer.core.sequence import request_output
from nanoinfer.engine.checkpoint import resolve_model
from nanoinfer.engine.garbage import no_full_collection
from nanoinfer.engine.tokenizer import TOKENIZER_FILES, Tokenizer, conversations, load_tokenizer, split_thinking
from nanoinfer.extras import require
from nanoinfer.models.config import load_config
from nanoinfer.runner.model_runner import ModelRunner
from nanoinfer.sampling_params import SamplingParams
from nanoinfer.trace.trace import OnStep, Trace

if TYPE_CHECKING:
    from nanoinfer.explore.live import LiveExplorer

Prompt = str | Sequence[int]
Prompts = Prompt | Sequence[Prompt]  # a bare string is one prompt
Output = dict[str, Any]
Params = SamplingParams | Sequence[SamplingParams] | None
Prepared = tuple[list[int], SamplingParams, str | None]  # a request that has passed every check: ids, how, its text


class LLMEngine:
    """A loaded model that serves requests.

    With tensor_parallel_size above 1 it starts a process for each further device. Under torchrun those are there
    already: on ranks above 0 the constructor serves rank 0 until that closes its engine, and raises SystemExit.

    Args:
        model: a directory with a Qwen3 checkpoint, a hub id such as "Qwen/Qwen3-0.6B", or "tiny", the small
            model that ships with the package. Without tokenizer files, prompts are token ids only.
        scheduler_cls: a class with the methods of Scheduler, in place of the one that `policy` names.
        block_manager_cls: a class with the methods of BlockManager, in place of it.
        **settings: fields of EngineConfig.

    Attributes:
        config: the settings with everything resolved ("auto" values, pool size, vocabulary).
        core: the step loop, with the scheduler and the live requests.
        runner: the model on its device; None once the engine is closed.
        tokenizer: None without tokenizer files.

    Raises:
        TypeError: an unknown setting; the message names the nearest known one. Or overlap=True with a scheduler class
            that cannot overlap; the message says why not.
        ValueError: a setting out of range, a policy that contradicts `scheduler_cls`, or a missing or damaged
            checkpoint.
        RuntimeError: a hub id that cannot be downloaded here, or with tensor_parallel_size above 1 a rank that failed.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        scheduler_cls: type[Scheduler] | None = None,
        block_manager_cls: type[BlockManager] = BlockManager,
        **settings: Any,
    ) -> None:
        config = EngineConfig(**{"policy": policy_name(scheduler_cls)} | settings, model=fspath(model))
        named = scheduler_class(config.policy, scheduler_cls)  # refused here, before the model is loaded
        if config.overlap:
            overlapped(named)
        model_dir = resolve_model(fspath(model))
        check_token_ids(config.eos, load_config(model_dir).vocab_size, "eos")
        self.runner: ModelRunner | None = load_runner(config, model_dir)
        self.tokenizer = load_tokenizer(model_dir)
        self.config = replace(
            config,
            max_model_len=min(config.max_model_len, self.runner.max_position_embeddings),
            num_kvcache_blocks=self.runner.num_kvcache_blocks,
            device=self.runner.device.type,
            dtype=str(self.runner.dtype).removeprefix("torch."),
            attention_backend=self.runner.loaded.backend.name,
            eos=config.eos or self.runner.eos_token_ids,
            vocab_size=self.runner.vocab_size,
            # Overlap pays where the device computes by itself while the CPU goes on.
            overlap=self.runner.on_gpu and not why_not(named) if config.overlap is None else config.overlap,
        )
        device = torch.cuda.get_device_name(self.runner.device) if self.config.device == "cuda" else "cpu"
        loop = OverlappedCore if self.config.overlap else EngineCore
        self.core = loop(self.config, self.runner, time.perf_counter, "seconds", device, named, block_manager_cls)
        self._unclaimed: list[Request] = []  # finished, but their output was not handed out yet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = self.runner is None or self.runner.closed
        state = "closed" if closed else f"{len(self.core.sequences)} live requests"
        return f"<LLM {self.config.model!r} on {self.config.device}, {self.config.num_kvcache_blocks} blocks, {state}>"

    def close(self) -> None:
        """Give the model's and the cache's memory back. A second call does nothing."""
        runner, self.runner = self.runner, None
        if runner:
            runner.close()

    @property
    def scheduler(self) -> Scheduler:
        """The live scheduler, to look at."""
        return self.core.scheduler

    # ---- whole batches --------------------------------------------------------------------

    @overload
    def generate(
        self, prompts: Prompts, sampling_params: Params = None, *, record: Literal[False] = ..., use_tqdm: bool = ...
    ) -> list[Output]: ...

    @overload
    def generate(
        self,
        prompts: Prompts,
        sampling_params: Params = None,
        *,
        record: Literal[True] = ...,
        on_step: OnStep | None = ...,
        use_tqdm: bool = ...,
    ) -> Trace: ...

    def generate(
        self,
        prompts: Prompts,
        sampling_params: Params = None,
        *,
        record: bool = False,
        on_step: OnStep | None = None,
        use_tqdm: bool = True,
    ) -> list[Output] | Trace:
        """Complete every prompt.

        Args:
            prompts: texts or lists of token ids; a bare string is one prompt.
            sampling_params: one for all, or one for each prompt.
            record: return the Trace instead; its `outputs` is the same list.
            on_step: called as on_step(trace, i) after each step; implies `record`.
            use_tqdm: show a progress bar once the work has taken a second.

        Returns:
            a list of {"request_id", "prompt", "text", "token_ids", "finish_reason", ...} in input order, or a Trace;
            "text" is None when the model has no tokenizer.

        Raises:
            ValueError: a prompt or its parameters are refused. No prompt of the batch is queued then.
            KeyboardInterrupt: the batch is dropped, its blocks are free and the engine goes on.
            RuntimeError: the engine is closed: by `close()`, by on_step, or because one of several ranks has ended.
        """
        if not isinstance(prompts, Iterable):
            raise ValueError(f"prompts must be a string, or a list of strings or lists of token ids, got {prompts!r}")
        batch = [prompts] if isinstance(prompts, str) else list(prompts)
        encoded = [self._encode(prompt, name) for prompt, name in zip(batch, names_of(len(batch)), strict=True)]
        requests = self._prepare(encoded, sampling_params)
        served: list[Output] | Trace = self._serve(requests, record or on_step is not None, on_step, use_tqdm)
        return served

    def chat(
        self,
        messages: Sequence[Any],
        sampling_params: Params = None,
        *,
        record: bool = False,
        on_step: OnStep | None = None,
        use_tqdm: bool = True,
        **template_options: Any,
    ) -> Any:
        """Answer one conversation, or a list of them, through the checkpoint's own chat template.

        Args:
            messages: [{"role", "content"}, ...], or a list of such conversations.
            sampling_params: as in `generate`, and so are `record`, `on_step` and `use_tqdm`.
            record: see `generate`.
            on_step: see `generate`.
            use_tqdm: see `generate`.
            **template_options: passed to the template, e.g. enable_thinking=False.

        Returns:
            as `generate` does; each output's "prompt" is the rendered template, what the model really saw.
        """
        chats = conversations(messages)
        tokenizer = self._needed_tokenizer()
        rendered = [tokenizer.apply_chat_template(chat, **template_options) for chat in chats]
        requests = self._prepare([(ids, text) for text, ids in rendered], sampling_params)
        return self._serve(requests, record or on_step is not None, on_step, use_tqdm)

    split_thinking = staticmethod(split_thinking)

    def _serve(self, requests: list[Prepared], record: bool, on_step: OnStep | None, use_tqdm: bool) -> Any:
        trace = self.start_trace(on_step) if record else None
        ids = range(self.core.next_id, self.core.next_id + len(requests))
        try:
            with no_full_collection():
                for request in requests:
                    self.core.add(*request)
                batch = [self.core.sequences[seq_id] for seq_id in ids]
                done = self._run_until_done(batch, use_tqdm)
        except BaseException:
            self.core.drop(ids)
            raise
        finally:
            if trace and self.core.trace is trace:  # a callback may have stopped it
                self.stop_trace()
        outputs = [done[seq.seq_id] if seq.seq_id in done else self._output(seq) for seq in batch]
        if trace is None:
            return outputs
        trace.outputs[:] = outputs
        return trace

    def _run_until_done(self, batch: list[Request], use_tqdm: bool) -> dict[int, Output]:
        """Step until every sequence of `batch` has finished (or was aborted by a callback); the outputs of those that
        finished, made at once: the next step is on the device already, so their text costs no time."""
        unfinished = {seq.seq_id for seq in batch}
        outputs: dict[int, Output] = {}
        most = sum(seq.sampling_params.max_tokens for seq in batch)
        with tqdm(total=most, desc="Generating", unit="tok", delay=1, disable=not use_tqdm or None) as bar:
            while unfinished and not self.core.is_finished():
                self._live_runner()  # a callback may have closed the engine
                self._unclaimed += self.core.step()
                done = [seq for seq in self._unclaimed if seq.seq_id in unfinished]
                self._unclaimed = [seq for seq in self._unclaimed if seq.seq_id not in unfinished]
                unfinished -= {seq.seq_id for seq in done}
                outputs |= {seq.seq_id: self._output(seq) for seq in done}
                if not bar.disable:
                    bar.total = sum(
                        s.num_completion_tokens if s.is_finished else s.sampling_params.max_tokens for s in batch
                    )
                    bar.update(sum(seq.num_completion_tokens for seq in batch) - bar.n)
        return outputs

    # ---- by hand --------------------------------------------------------------------------

    def add_request(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> int:
        """Queue one prompt and return its request id. Raises ValueError if it is refused; nothing is queued then."""
        return self.core.add(*self._prepare([self._encode(prompt, "prompt")], sampling_params)[0])

    def step(self) -> list[Output]:
        """Run one step; the outputs of the requests that finished in it. On an idle engine it does nothing.

        With `overlap` the outputs are of the step before: this one goes on while the caller does something else.
        """
        self._live_runner()
        self._unclaimed += self.core.step()
        finished = [self._output(seq) for seq in self._unclaimed]
        self._unclaimed = []
        if self.core.trace:
            _add_outputs(self.core.trace, finished)
        return finished

    def abort(self, request_id: int) -> Output:
        """Drop a live request, free its blocks and return what it had so far. Raises ValueError for an unknown id."""
        return self._output(self.core.abort(request_id))

    def is_finished(self) -> bool:
        """Whether nothing is queued and every result was returned."""
        return self.core.is_finished() and not self._unclaimed

    def reset_prefix_cache(self) -> None:
        """Forget every cached prefix. Requests in flight keep their blocks."""
        self.core.scheduler.block_manager.reset_prefix_cache()

    def start_trace(self, on_step: OnStep | None = None) -> Trace:
        """Record from here on into a trace that grows with each step. Raises RuntimeError if one is being recorded."""
        self._live_runner()
        versions = {name: version(name) for name in ("torch", "transformers")}
        return self.core.start_trace(versions, on_step)

    def stop_trace(self) -> Trace:
        """End the recording and return the trace. Raises RuntimeError if none is being recorded.

        What the steps in flight finish is among the trace's outputs, and `step()` will still return it.
        """
        trace = self.core.stop_trace()
        self._unclaimed += self.core.take_finished()
        _add_outputs(trace, [self._output(seq) for seq in self._unclaimed])
        return trace

    def top_candidates(self, request_id: int, k: int = 10) -> list[dict[str, Any]]:
        """The k most likely tokens of a request's row in the last step, before temperature and truncation.

        An overlapped engine first waits for the step in flight, which then is the last.

        Returns:
            [{"token_id", "text", "probability"}], most likely first; text is None without a tokenizer.

        Raises:
            ValueError: the request had no row in the last step.
        """
        runner = self._live_runner()
        self.core.settle()
        candidates = runner.top_candidates(request_id, k)
        return [{"token_id": token, "text": self._text([token]), "probability": p} for token, p in candidates]

    def explore(
        self, prompts: Prompts | None = None, sampling_params: Params = None, theme: str = "auto"
    ) -> LiveExplorer:
        """The live explorer: this engine with buttons, one step per click. Needs the `notebooks` extra.

        Args:
            prompts: queued at once, and again by Reset.
            sampling_params: one for all prompts, or one for each.
            theme: "auto" (as the notebook), "light" or "dark".
        """
        require("llm.explore()", "anywidget")
        from nanoinfer.explore.live import LiveExplorer

        decode = self.tokenizer.decode if self.tokenizer else None
        return LiveExplorer(self, prompts, sampling_params, theme, decode)

    # ---- checks and conversions -----------------------------------------------------------

    def _live_runner(self) -> ModelRunner:
        if self.runner is None or self.runner.closed:
            raise RuntimeError("this engine is closed; make a new one")
        return self.runner

    def _encode(self, prompt: object, name: str) -> tuple[list[int], str | None]:
        """Token ids and, where there was one, the text. Raises ValueError for anything else."""
        if isinstance(prompt, str):
            return self._needed_tokenizer().encode(prompt), prompt
        if not isinstance(prompt, Iterable):
            raise ValueError(
                f"{name} must be a string or a list of token ids, got {prompt!r}; one prompt of ids is [[...]]"
            )
        return check_token_ids(prompt, self.config.vocab_size, f"{name} token ids"), None

    def _prepare(self, prompts: list[tuple[list[int], str | None]], params: Params) -> list[Prepared]:
        """Check every request of a batch before any is queued."""
        self._live_runner()
        each = one_per_prompt(prompts, params)
        for name, (token_ids, _), request_params in zip(names_of(len(prompts)), prompts, each, strict=True):
            check_request(token_ids, request_params, self.config, name)
        return [(ids, p, text) for (ids, text), p in zip(prompts, each, strict=True)]

    def _output(self, seq: Request) -> Output:
        return request_output(seq, self._text(seq.completion_token_ids))

    def _text(self, token_ids: Sequence[int]) -> str | None:
        return self.tokenizer.decode(token_ids) if self.tokenizer else None

    def _needed_tokenizer(self) -> Tokenizer:
        """For text that must become token ids. Raises ValueError when the model directory holds no tokenizer."""
        if self.tokenizer is None:
            raise ValueError(
                f"model {self.config.model!r} has no tokenizer files ({', '.join(TOKENIZER_FILES)}), so it takes no "
                "text: give each prompt as a list of token ids, or add the files"
            )
        return self.tokenizer


def names_of(count: int) -> list[str]:
    """What messages call the prompts of a batch."""
    return ["prompt"] if count == 1 else [f"prompt {i}" for i in range(count)]


def load_runner(config: EngineConfig, model_dir: Path) -> ModelRunner:
    """The model on its device, or on as many as share it: then this process is rank 0, and the others are started."""
    if config.tensor_parallel_size == 1:
        return ModelRunner(config, model_dir)
    from nanoinfer.parallel.runner import lead_or_serve

    return lead_or_serve(config, model_dir)


def _add_outputs(trace: Trace, outputs: list[Output]) -> None:
    """Those of requests that the trace has seen; others finished before it began, and were not fetched till now."""
    trace.outputs.extend(output for output in outputs if output["request_id"] in trace.requests)


LLM = LLMEngine  # one class, two names that readers know
