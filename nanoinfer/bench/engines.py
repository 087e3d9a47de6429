"""The engines that can be measured, each behind one call: prompts and output lengths in, token ids out.

Every engine samples at the same temperature with no other filter, never stops at an end token and gives exactly the
output lengths that are asked for.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nanoinfer import LLM, EngineConfig, SamplingParams
from nanoinfer.engine.tokenizer import load_tokenizer

TokenIds = list[list[int]]


@dataclass(frozen=True)
class PeerSettings:
    """What a peer is built from.

    Attributes:
        model_dir: the model's directory.
        config: this engine's settings, resolved; a peer takes over those that it has too.
        temperature: of every request.
    """

    model_dir: Path
    config: EngineConfig
    temperature: float


def generate_with(llm: LLM, temperature: float, record: bool) -> Callable[[TokenIds, list[int]], TokenIds]:
    """This engine's `generate` on token ids."""

    def generate(prompts: TokenIds, output_lens: list[int]) -> TokenIds:
        params = [SamplingParams(temperature=temperature, max_tokens=n, ignore_eos=True) for n in output_lens]
        if record:
            outputs = llm.generate(prompts, params, record=True, use_tqdm=False).outputs
        else:
            outputs = llm.generate(prompts, params, use_tqdm=False)
        return [output["token_ids"] for output in outputs]

    return generate


class TransformersPeer:
    """`generate` of transformers on left-padded batches of at most max_num_seqs prompts.

    A batch runs until its longest output is done, and what a request did not ask for is cut off. No text is made.
    """

    def __init__(self, settings: PeerSettings) -> None:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        config, dtype = settings.config, getattr(torch, settings.config.dtype)
        torch.manual_seed(config.seed)
        auto: Any = AutoModelForCausalLM
        if config.load_format == "dummy":
            with torch.device(config.device):  # random numbers are drawn where they stay
                model = auto.from_config(AutoConfig.from_pretrained(settings.model_dir), dtype=dtype)
        else:
            model = auto.from_pretrained(settings.model_dir, dtype=dtype)
        self.model = model.to(config.device).eval()
        self.model.generation_config.eos_token_id = None  # never stops early
        self.batch_size, self.device = config.max_num_seqs, config.device
        sampling = {"do_sample": True, "temperature": settings.temperature, "top_k": 0, "top_p": 1.0}
        self.sampling: dict[str, Any] = sampling if settings.temperature > 0 else {"do_sample": False}

    def generate(self, prompts: TokenIds, output_lens: list[int]) -> TokenIds:
        outputs: TokenIds = []
        for first in range(0, len(prompts), self.batch_size):
            batch = slice(first, first + self.batch_size)
            outputs += self._batch(prompts[batch], output_lens[batch])
        return outputs

    def _batch(self, prompts: TokenIds, output_lens: list[int]) -> TokenIds:
        import torch

        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts], device=self.device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=self.device)
        with torch.inference_mode():
            out = self.model.generate(
                ids, attention_mask=mask, pad_token_id=0, max_new_tokens=max(output_lens), **self.sampling
            )
        return [row[:n] for row, n in zip(out[:, width:].tolist(), output_lens, strict=True)]

    def close(self) -> None:
        del self.model
        release_memory()


class VllmPeer:
    """vLLM's offline `LLM`, with this engine's limits and vLLM's own block size, kernels and scheduler.

    It turns tokens into text if and only if this engine does, which is when the model has a tokenizer.
    """

    def __init__(self, settings: PeerSettings) -> None:
        vllm: Any = import_module("vllm")
        config = settings.config
        has_tokenizer = load_tokenizer(settings.model_dir) is not None
        self.llm = vllm.LLM(
            model=str(settings.model_dir),
            skip_tokenizer_init=not has_tokenizer,
            dtype=config.dtype,
            tensor_parallel_size=config.tensor_parallel_size,
            gpu_memory_utilization=config.gpu_memory_utilization,
            max_model_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            enable_prefix_caching=config.enable_prefix_caching,
            enforce_eager=config.enforce_eager,
            load_format=config.load_format,
            seed=config.seed,
        )
        self.params = {"temperature": settings.temperature, "ignore_eos": True, "detokenize": has_tokenizer}
        self.sampling_params = vllm.SamplingParams

    def generate(self, prompts: TokenIds, output_lens: list[int]) -> TokenIds:
        params = [self.sampling_params(max_tokens=n, **self.params) for n in output_lens]
        outputs = self.llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def close(self) -> None:
        del self.llm
        release_memory()


Peer = TransformersPeer | VllmPeer
PEERS: dict[str, type[Peer]] = {"transformers": TransformersPeer, "vllm": VllmPeer}


def check_peer(name: str) -> None:
    """Check before any work that a peer is installed.

    Raises:
        ValueError: no such peer; lists them.
        RuntimeError: it is not installed; says how.
    """
    if name not in PEERS:
        raise ValueError(f"--against must be one of {', '.join(PEERS)}, got {name!r}")
    if find_spec(name) is None:
        raise RuntimeError(
            f"{name} is not installed here, so there is nothing to compare with; run: pip install {name}"
        )


def make_peer(name: str, settings: PeerSettings) -> Peer:
    """Build a peer. Raises RuntimeError when its package is installed but cannot be imported."""
    try:
        return PEERS[name](settings)
    except ImportError as error:
        raise RuntimeError(f"{name} is installed but cannot be imported: {error}") from error


def release_memory() -> None:
    """Give freed GPU memory back to the device, for the next engine."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
