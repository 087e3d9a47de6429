"""A model on its device, with its KV cache, its input buffers and its CUDA graphs: everything that computes a step.

It knows arrays and no sequences, so that all ranks of a shared model can do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from nanoinfer.config import EngineConfig
from nanoinfer.models.config import load_config
from nanoinfer.models.layers import Placement
from nanoinfer.models.loader import fill_random, load_weights
from nanoinfer.models.ops import LayerCache
from nanoinfer.models.parallel import Ranks, check_divisible
from nanoinfer.models.qwen3 import Parts, Qwen3ForCausalLM
from nanoinfer.runner import kv_cache, sampler
from nanoinfer.runner.attention import AttentionBatch, make_backend
from nanoinfer.runner.device import make_kernels, resolve_device, resolve_dtype
from nanoinfer.runner.graphs import DecodeGraphs, graph_sizes
from nanoinfer.runner.host_step import HostStep, array_shapes
from nanoinfer.runner.in_flight import InFlight, InputBuffer, OutputBuffer
from nanoinfer.runner.inputs import to_tensors

CORE_CACHE_BYTES = 8 << 20  # a layer this small stays in a core's cache, so a second core has little to fetch
SHORT_STEP_TOKENS = 8


class LoadedModel:
    """One rank's model, ready to compute. Arguments and errors are those of `ModelRunner`.

    Attributes:
        caches: one for each layer, in the attention backend's layout.
        sampled: [max_num_seqs], on the device: the ids of the last step's rows, for the next step to go on from.
        last_logits: [rows, vocab_size] of the last step; None before the first.
        table_width: entries in a row of the block tables; 0 for as many as a step needs.
    """

    def __init__(self, config: EngineConfig, model_dir: Path, ranks: Ranks) -> None:
        self.config, self.ranks = config, ranks
        self.model_config = load_config(model_dir)
        check_divisible(self.model_config, ranks.size)
        self.device = resolve_device(config.device, ranks.device_index)
        self.on_gpu = self.device.type == "cuda"
        self.dtype = resolve_dtype(config.dtype, self.device, self.model_config)
        self.block_size = config.kvcache_block_size
        self.max_model_len = min(config.max_model_len, self.model_config.max_position_embeddings)
        self.table_width = -(-self.max_model_len // self.block_size) if self.on_gpu else 0
        self.backend = make_backend(config.attention_backend, self.device, self.dtype, self.block_size)
        self.ops, self.draw = make_kernels(self.device, self.backend.name)
        self.last_logits: Tensor | None = None
        held_before = torch.cuda.memory_allocated(self.device) if self.on_gpu else 0
        with self.on_device():
            self.model = self.load_model(model_dir)
            self.make_buffers()
            self.num_kvcache_blocks = self.size_kv_cache(held_before)
            self.caches = self.allocate_kv_cache(self.num_kvcache_blocks)
            self.graphs = self.capture_graphs()

    # ---- memory ---------------------------------------------------------------------------

    def load_model(self, model_dir: Path) -> Qwen3ForCausalLM:
        """Build the model in its final dtype on its final device, and fill it."""
        place = Placement(dtype=self.dtype, device=self.device)
        model = Qwen3ForCausalLM(self.model_config, Parts(place, self.backend, self.ops, self.ranks))
        if self.config.load_format == "dummy":
            fill_random(model, self.config.seed)
        else:
            load_weights(model, model_dir)
        return model

    def make_buffers(self) -> None:
        """Memory for what one step hands to the next; on a GPU also for the inputs and outputs of two in flight."""
        rows = graph_sizes(self.config.max_num_seqs)[-1]
        self.sampled = torch.zeros(rows, dtype=torch.int64, device=self.device)
        self.buffers: dict[str, InputBuffer] = {}
        self.outputs: list[OutputBuffer] = []
        if not self.on_gpu:
            return
        tokens = self.config.max_num_batched_tokens + rows  # a decode batch is capped by rows alone
        self.buffers = {
            "decode": InputBuffer(array_shapes(rows, rows, self.table_width), self.device),
            "prefill": InputBuffer(array_shapes(tokens, rows, self.table_width), self.device),
        }
        self.outputs = [OutputBuffer(rows), OutputBuffer(rows)]
        self.graph_logits = torch.empty((rows, self.model_config.vocab_size), dtype=self.dtype, device=self.device)

    def size_kv_cache(self, held_before: int) -> int:
        """Blocks in the pool; on a GPU after measuring what the largest step takes. The least over all ranks."""
        activations = self.peak_of_largest_step() if self.on_gpu and self.config.num_kvcache_blocks == -1 else 0
        held = torch.cuda.memory_allocated(self.device) - held_before if self.on_gpu else 0
        budget = kv_cache.memory_budget(self.config, self.device, held, activations)
        return kv_cache.num_blocks(self.config, self.model_config, self.dtype, budget, self.ranks)

    def peak_of_largest_step(self) -> int:
        """Bytes that a prefill of max_num_batched_tokens takes beside the weights, found by running one."""
        self.caches = self.allocate_kv_cache(1)
        step = kv_cache.largest_step(self.config, self.max_model_len)
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        with torch.inference_mode():
            self.compute(step)
        torch.cuda.synchronize(self.device)
        peak = torch.cuda.max_memory_allocated(self.device) - before
        self.caches, self.last_logits = [], None
        torch.cuda.empty_cache()
        return peak

    def allocate_kv_cache(self, num_blocks: int) -> list[LayerCache]:
        """One uninitialised cache for each layer. On the CPU, pages cost nothing until they are written."""
        model = self.model_config
        kv_heads = model.num_key_value_heads // self.ranks.size
        shape = self.backend.kv_cache_shape(num_blocks, self.block_size, kv_heads, model.head_dim)
        layers = range(model.num_hidden_layers)
        return [self.backend.views(torch.empty(shape, dtype=self.dtype, device=self.device)) for _ in layers]

    def capture_graphs(self) -> DecodeGraphs | None:
        """CUDA graphs of the decode step, where backend and settings allow them."""
        if not self.on_gpu or self.config.enforce_eager or not self.backend.in_graphs:
            return None
        with torch.inference_mode():
            return DecodeGraphs(graph_sizes(self.config.max_num_seqs), self.decode_on_buffer)

    # ---- one step -------------------------------------------------------------------------

    def start(self, step: HostStep, check: Callable[[], None], began: float) -> InFlight:
        """Enqueue a step on the GPU; `check` and `began` as in `InFlight`."""
        output = self.outputs.pop(0)
        self.outputs.append(output)
        output.start.record()
        return InFlight(output, self.compute(step), step, check, began)

    def compute(self, step: HostStep) -> Tensor:
        """Enqueue or, on the CPU, do the work of a step; the sampled ids [rows] on the device, which stay in
        `self.sampled` until the next step overwrites them."""
        buffer = self.buffers.get("decode" if step.graph_size else "prefill")
        tensors = buffer.upload(step.arrays) if buffer else to_tensors(step.arrays)
        if step.graph_size and self.graphs:
            logits = self.graphs.replay(step.graph_size)[: step.num_rows]
        else:
            logits = self.forward(tensors, step.query_lens, step.context_lens)
            self.sample(logits, tensors)
        if step.filters:
            sampler.sample_filtered(logits, tensors, step.filters, self.sampled)
        self.last_logits = logits
        return self.sampled[: step.num_rows]

    def decode_on_buffer(self, size: int) -> Tensor:
        """A decode step of `size` rows on the contents of the decode buffer: what a CUDA graph captures."""
        shapes = {name: (size, *shape[1:]) for name, (_, shape) in self.buffers["decode"].shapes.items()}
        tensors = self.buffers["decode"].views(shapes | {"query_starts": (size + 1,)})
        logits = self.forward(tensors, [1] * size, [0] * size, self.graph_logits[:size])
        self.sample(logits, tensors)
        return logits

    def forward(
        self, tensors: Mapping[str, Tensor], query_lens: list[int], context_lens: list[int], out: Tensor | None = None
    ) -> Tensor:
        """Logits [rows, vocab_size] of each row's last token, in `out` where it is given.

        `tensors` are a step's arrays on the device; the lengths are those of `AttentionBatch`.
        """
        starts, contexts, tables = (tensors[name] for name in ("query_starts", "context_lens", "block_tables"))
        batch = AttentionBatch(query_lens, context_lens, starts, contexts, tables, self.block_size)
        metadata, decoding = self.backend.prepare(batch, self.dtype), batch.is_decode
        token_ids = self.ops.feed_tokens(tensors["token_ids"], self.sampled)
        hidden = self.model(token_ids, tensors["positions"], tensors["slot_mapping"], self.caches, metadata, decoding)
        last = hidden if decoding else hidden[tensors["last_indices"]]
        return self.model.compute_logits(last, decoding, out)

    def sample(self, logits: Tensor, tensors: Mapping[str, Tensor]) -> None:
        """Draw a token for each row from the whole vocabulary, into `self.sampled`."""
        own = {name: tensors[name] for name in ("temperatures", "keys", "draws")}
        self.draw(logits, **own, out=self.sampled[: len(logits)])

    # ---- around a step, and after the last ------------------------------------------------

    @contextmanager
    def ready(self, step: HostStep) -> Iterator[None]:
        """Where `start` and `compute` are to be called."""
        small = not self.on_gpu and self.model_config.layer_bytes(self.dtype) <= CORE_CACHE_BYTES
        short = small and len(step.arrays["token_ids"]) <= SHORT_STEP_TOKENS
        with torch.inference_mode(), one_thread() if short else nullcontext(), self.on_device():
            yield

    def on_device(self) -> AbstractContextManager[object]:
        """Make this model's GPU the current one inside the block, and nowhere else."""
        return torch.cuda.device(self.device) if self.on_gpu else nullcontext()

    def close(self) -> None:
        """Wait for the device, and free all but the weights even while an error's traceback holds this object."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)
        self.graphs, self.last_logits = None, None
        self.caches, self.buffers, self.outputs = [], {}, []


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block on one CPU thread. The number is the process's own, and is put back afterwards.

    A matrix product of some microseconds gains nothing from a second thread, and on a busy machine it loses a
    thousandfold: the threads of a parallel region wait for the one that the system has put to sleep.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
