"""Runs one plan: inputs, forward pass, sampling. Owns the model and the KV cache memory.

It decides nothing: which rows run and which blocks they use is the scheduler's plan, and what becomes of the
sampled tokens is the scheduler's `postprocess`.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from nanoinfer.config import EngineConfig
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.models.config import Qwen3Config, load_config
from nanoinfer.models.layers import Placement
from nanoinfer.models.loader import fill_random, load_weights
from nanoinfer.models.qwen3 import Qwen3ForCausalLM
from nanoinfer.runner import kv_cache
from nanoinfer.runner.attention import make_backend
from nanoinfer.runner.inputs import StepInputs, decode_inputs, prefill_inputs
from nanoinfer.runner.sampler import Sampler
from nanoinfer.runner.threads import one_thread

CORE_CACHE_BYTES = 8 << 20  # a layer this small stays in a core's cache, so a second core has little to fetch
SHORT_STEP_TOKENS = 8
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ModelRunner:
    """A loaded model with its KV cache.

    Args:
        config: the engine's settings; "auto" values are resolved here.
        model_dir: directory with `config.json` and, unless load_format is "dummy", the weights.

    Attributes:
        model_config: the model's shape.
        device, dtype: where and in what the model runs.
        num_kvcache_blocks: blocks in the pool.
        kv_caches: one tensor for each layer, in the attention backend's layout.

    Raises:
        ValueError: a setting this build or machine cannot serve, or a bad checkpoint; names it and the fix.
    """

    def __init__(self, config: EngineConfig, model_dir: Path) -> None:
        if config.tensor_parallel_size != 1:
            raise ValueError(
                f"tensor_parallel_size={config.tensor_parallel_size}: this build runs on one device; set it to 1"
            )
        self.config = config
        self.model_config = load_config(model_dir)
        self.device = resolve_device(config.device)
        self.dtype = resolve_dtype(config.dtype, self.device, self.model_config)
        self.backend = make_backend(config.attention_backend)
        self.model = self.load_model(model_dir)
        self.num_kvcache_blocks = kv_cache.num_blocks(config, self.model_config, self.dtype, self.device)
        self.kv_caches = self.allocate_kv_cache()
        self.sampler = Sampler(config.seed)
        self.last_logits: dict[int, Tensor] = {}

    @property
    def max_position_embeddings(self) -> int:
        return self.model_config.max_position_embeddings

    @property
    def vocab_size(self) -> int:
        return self.model_config.vocab_size

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.model_config.eos_token_ids

    def load_model(self, model_dir: Path) -> Qwen3ForCausalLM:
        """Build the model in its final dtype on its final device, and fill it."""
        model = Qwen3ForCausalLM(self.model_config, self.backend, Placement(dtype=self.dtype, device=self.device))
        if self.config.load_format == "dummy":
            fill_random(model, self.config.seed)
        else:
            load_weights(model, model_dir)
        return model

    def allocate_kv_cache(self) -> list[Tensor]:
        """One uninitialised cache tensor per layer. On the CPU, pages cost nothing until they are written."""
        model, block_size = self.model_config, self.config.kvcache_block_size
        shape = self.backend.kv_cache_shape(
            self.num_kvcache_blocks, block_size, model.num_key_value_heads, model.head_dim
        )
        return [torch.empty(shape, dtype=self.dtype, device=self.device) for _ in range(model.num_hidden_layers)]

    def prepare_prefill(self, rows: Seq[Row]) -> StepInputs:
        """Inputs of whole prompts, chunks, and, in a mixed plan, decodes among them."""
        return prefill_inputs(rows, self.config.kvcache_block_size, self.device)

    def prepare_decode(self, rows: Seq[Row]) -> StepInputs:
        """Inputs of rows that each compute their last token."""
        return decode_inputs(rows, self.config.kvcache_block_size, self.device)

    def run(self, plan: StepPlan) -> list[int]:
        """Compute the plan's tokens and sample one id for each row, in row order.

        Writes the KV cache at the rows' slots. Rows that stop in the middle of a prompt get an id too; it means
        nothing, and drawing it disturbs nothing.
        """
        if not plan.rows:
            return []
        with torch.inference_mode(), self.threads(plan):
            inputs = self.prepare_decode(plan.rows) if plan.phase == "decode" else self.prepare_prefill(plan.rows)
            logits = self.forward(inputs)
            self.last_logits = {row.seq_id: logits[i] for i, row in enumerate(plan.rows)}
            return self.sampler.sample(logits, [row.seq for row in plan.rows])

    def threads(self, plan: StepPlan) -> AbstractContextManager[None]:
        """One thread for the short steps of a small model on the CPU: more would mostly wait for each other."""
        small = self.device.type == "cpu" and self.model_config.layer_bytes(self.dtype) <= CORE_CACHE_BYTES
        return one_thread() if small and plan.num_batched_tokens <= SHORT_STEP_TOKENS else nullcontext()

    def forward(self, inputs: StepInputs) -> Tensor:
        """Logits [rows, vocab_size] of each row's last token."""
        metadata = self.backend.prepare(inputs.attention, self.dtype)
        hidden: Tensor = self.model(inputs.token_ids, inputs.positions, self.kv_caches, metadata)
        return self.model.compute_logits(hidden[inputs.last_indices])

    def top_candidates(self, seq_id: int, k: int) -> list[tuple[int, float]]:
        """The k most likely next tokens of a sequence in the last step, with their probabilities at temperature 1.

        Raises:
            ValueError: the sequence was not in the last step, or k is below 1.
        """
        if seq_id not in self.last_logits:
            raise ValueError(f"sequence {seq_id} was not in the last step; it held {sorted(self.last_logits)}")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        probs, ids = self.last_logits[seq_id].float().softmax(dim=-1).topk(min(k, self.vocab_size))
        return list(zip(ids.tolist(), probs.tolist(), strict=True))

    def close(self) -> None:
        """Give the memory back. The runner cannot run afterwards; closing twice is fine."""
        self.kv_caches.clear()
        self.last_logits.clear()
        for owner in ("model", "backend"):
            vars(self).pop(owner, None)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def resolve_device(name: str) -> torch.device:
    """The device of that name; "auto" is CUDA where there is some. Raises ValueError for one that is not there."""
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be one of auto, cpu, cuda, got {name!r}")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ValueError("device='cuda', but torch finds no CUDA device here; use device='cpu' or 'auto'")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


def resolve_dtype(name: str, device: torch.device, model: Qwen3Config) -> torch.dtype:
    """The dtype of that name; "auto" is float32 on the CPU and the checkpoint's own on a GPU."""
    chosen = name if name != "auto" else "float32" if device.type == "cpu" else model.dtype
    if chosen not in DTYPES:
        raise ValueError(f"dtype must be one of auto, {', '.join(DTYPES)}; the checkpoint's own is {chosen!r}")
    return DTYPES[chosen]
