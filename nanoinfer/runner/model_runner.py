"""Runs plans: inputs, forward pass, sampling. Owns the model and the KV cache memory.

It decides nothing: which rows run and which blocks they use is the scheduler's plan, and what becomes of the
sampled tokens is the scheduler's `postprocess`. Everything that reaches the device goes through `compute`, which
knows arrays and no sequences, so that all ranks of a shared model can do the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from nanoinfer.config import EngineConfig
from nanoinfer.core.overlap.in_flight import Done
from nanoinfer.core.plan import Row, StepPlan, StepResult
from nanoinfer.kernels.interpreter import repair_interpreter
from nanoinfer.models.config import Qwen3Config, load_config
from nanoinfer.models.layers import Placement
from nanoinfer.models.loader import fill_random, load_weights
from nanoinfer.models.ops import LayerCache, Ops, TorchOps
from nanoinfer.models.parallel import OneDevice, Ranks, check_divisible
from nanoinfer.models.qwen3 import Parts, Qwen3ForCausalLM
from nanoinfer.runner import kv_cache, sampler
from nanoinfer.runner.attention import interpreted, make_backend
from nanoinfer.runner.buffers import InputBuffer
from nanoinfer.runner.graphs import DecodeGraphs, graph_sizes
from nanoinfer.runner.host_step import HostStep, array_shapes
from nanoinfer.runner.in_flight import InFlight, Slot
from nanoinfer.runner.inputs import StepArrays, StepInputs, decode_arrays, prefill_arrays, to_tensors
from nanoinfer.runner.threads import one_thread

CORE_CACHE_BYTES = 8 << 20  # a layer this small stays in a core's cache, so a second core has little to fetch
SHORT_STEP_TOKENS = 8
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Draw = Callable[..., Tensor]  # see sampler.sample


class ModelRunner:
    """A loaded model with its KV cache.

    Args:
        config: the engine's settings; "auto" values are resolved here.
        model_dir: directory with `config.json` and, unless load_format is "dummy", the weights.
        ranks: the devices that share the model, of which this is one.

    Attributes:
        model_config: the model's shape.
        device, dtype: where and in what the model runs.
        num_kvcache_blocks: blocks in the pool.
        caches: one for each layer, in the attention backend's layout.
        sampled: [max_num_seqs], on the device: the ids of the last step's rows, for the next step to go on from.
        closed: the memory was given back.

    Raises:
        ValueError: a setting this build or machine cannot serve, or a bad checkpoint; names it and the fix.
    """

    def __init__(self, config: EngineConfig, model_dir: Path, ranks: Ranks | None = None) -> None:
        self.config = config
        self.ranks = ranks or OneDevice()
        self.model_config = load_config(model_dir)
        check_divisible(self.model_config, self.ranks.size)
        self.device = resolve_device(config.device, self.ranks.device_index)
        self.dtype = resolve_dtype(config.dtype, self.device, self.model_config)
        self.block_size = config.kvcache_block_size
        self.max_model_len = min(config.max_model_len, self.model_config.max_position_embeddings)
        self.backend = make_backend(config.attention_backend, self.device, self.dtype, self.block_size)
        self.ops, self.draw = make_kernels(self.device, self.backend.name)
        self.on_gpu = self.device.type == "cuda"
        held_before = torch.cuda.memory_allocated(self.device) if self.on_gpu else 0
        self.sampled_in: dict[int, int] = {}  # the row each sequence had in the last step
        self.last_logits: Tensor | None = None
        self.closed = False
        with self.on_device():
            self.model = self.load_model(model_dir)
            self.make_buffers()
            self.num_kvcache_blocks = self.size_kv_cache(held_before)
            self.caches = self.allocate_kv_cache(self.num_kvcache_blocks)
            self.graphs = self.capture_graphs()

    @property
    def max_position_embeddings(self) -> int:
        return self.model_config.max_position_embeddings

    @property
    def vocab_size(self) -> int:
        return self.model_config.vocab_size

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.model_config.eos_token_ids

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
        """Memory for what one step hands to the next, and on a GPU for the inputs of two steps in flight."""
        rows = graph_sizes(self.config.max_num_seqs)[-1]
        self.sampled = torch.zeros(rows, dtype=torch.int64, device=self.device)
        self.slots: list[Slot] = []
        self.buffers: dict[str, InputBuffer] = {}
        self.table_width = -(-self.max_model_len // self.block_size) if self.on_gpu else 0
        if not self.on_gpu:
            return
        tokens = self.config.max_num_batched_tokens + rows  # a decode batch is capped by rows alone
        self.slots = [Slot(rows), Slot(rows)]
        self.buffers = {
            "decode": InputBuffer(array_shapes(rows, rows, self.table_width), self.device),
            "prefill": InputBuffer(array_shapes(tokens, rows, self.table_width), self.device),
        }
        self.graph_logits = torch.empty((rows, self.vocab_size), dtype=self.dtype, device=self.device)

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
        """CUDA graphs of the decode step, where the backend allows them and nobody forbade them."""
        if not self.on_gpu or self.config.enforce_eager or not self.backend.in_graphs:
            return None
        with torch.inference_mode():
            return DecodeGraphs(graph_sizes(self.config.max_num_seqs), self.decode_on_buffer)

    # ---- one step -------------------------------------------------------------------------

    def prepare_prefill(self, rows: Seq[Row]) -> StepArrays:
        """Inputs of whole prompts, chunks, and, in a mixed plan, decodes among them."""
        return prefill_arrays(rows, self.block_size, self.table_width, self.sampled_in)

    def prepare_decode(self, rows: Seq[Row], padded_rows: int = 0) -> StepArrays:
        """Inputs of rows that each compute their last token, filled up with rows that do nothing."""
        return decode_arrays(rows, self.block_size, self.table_width, self.sampled_in, padded_rows)

    def run(self, plan: StepPlan) -> StepResult:
        """Compute the plan's tokens and sample one id for each row, in row order.

        Writes the KV cache at the rows' slots. Rows that stop in the middle of a prompt get an id too; it means
        nothing, and drawing it disturbs nothing.
        """
        return self.launch(plan).result() if plan.rows else StepResult([])

    def launch(self, plan: StepPlan) -> Done | InFlight:
        """Start computing a plan with at least one row; on a GPU, without waiting for it.

        A row whose last token is PENDING goes on from the token that its sequence's row of the launch before samples.
        At most two launches may be without a `result()` at a time.
        """
        began = time.perf_counter()
        step = self.host_step(plan)
        entered = self.enter(step, began)
        self.sampled_in = dict(zip((row.seq_id for row in plan.rows), step.places, strict=True))
        return entered

    def host_step(self, plan: StepPlan) -> HostStep:
        """The plan as arrays, padded where a graph will run it."""
        decode = plan.phase == "decode"
        graph_size = self.graphs.size_for(len(plan.rows)) if self.graphs and decode else None
        # The longest first: work that begins late should be short, or the GPU waits for it alone.
        order = list(range(len(plan.rows)))
        if graph_size:
            order.sort(key=lambda i: -len(plan.rows[i].seq.token_ids))
        rows = [plan.rows[i] for i in order]
        inputs = self.prepare_decode(rows, graph_size or 0) if decode else self.prepare_prefill(rows)
        seqs = [row.seq for row in rows]
        arrays = sampler.sampling_arrays(seqs, self.config.seed, graph_size or 0) | inputs.as_dict()
        places = sorted(range(len(order)), key=order.__getitem__)  # the inverse of `order`
        return HostStep(places, arrays, graph_size, sampler.filters_of(seqs))

    def enter(self, step: HostStep, began: float) -> Done | InFlight:
        """Compute a step whose launch `began` then, or on a GPU begin to."""
        with self.ready(step):
            if self.on_gpu:
                return self.start(step, began)
            token_ids = self.compute(step).tolist()
            return Done(StepResult(token_ids, {"launch": time.perf_counter() - began}))

    def start(self, step: HostStep, began: float) -> InFlight:
        """Enqueue a step on the GPU."""
        slot = self.slots.pop(0)
        self.slots.append(slot)
        slot.start.record()
        return InFlight(slot, self.compute(step), step, self.check, began)

    def check(self) -> None:
        """Called again and again while a step in flight is waited for; raises when it cannot end well."""

    def compute(self, step: HostStep) -> Tensor:
        """Enqueue or, on the CPU, do the work of a step; the sampled ids [rows] on the device, which stay in
        `self.sampled` until the next step overwrites them."""
        buffer = self.buffers.get("decode" if step.graph_size else "prefill")
        tensors = buffer.upload(step.arrays) if buffer else to_tensors(step.arrays)
        if step.graph_size and self.graphs:
            logits = self.graphs.replay(step.graph_size)[: step.num_rows]
        else:
            logits = self.forward(tensors, step)
            self.sample(logits, tensors)
        if step.filters:
            rows = torch.tensor(step.filters.rows, device=self.device)
            self.sampled[rows] = sampler.sample_filtered(logits, tensors, step.filters)
        self.last_logits = logits
        return self.sampled[: step.num_rows]

    def decode_on_buffer(self, size: int) -> Tensor:
        """A decode step of `size` rows on whatever the decode buffer holds: what a CUDA graph is made of."""
        shapes = {name: (size, *shape[1:]) for name, (_, shape) in self.buffers["decode"].shapes.items()}
        tensors = self.buffers["decode"].views(shapes | {"query_starts": (size + 1,)})
        inputs = StepInputs.of(tensors, [1] * size, [0] * size, self.block_size)
        logits = self.forward_inputs(inputs, self.graph_logits[:size])
        self.sample(logits, tensors)
        return logits

    def forward(self, tensors: Mapping[str, Tensor], step: HostStep) -> Tensor:
        """Logits [rows, vocab_size] of each row's last token."""
        return self.forward_inputs(StepInputs.of(tensors, step.query_lens, step.context_lens, self.block_size))

    def forward_inputs(self, inputs: StepInputs, out: Tensor | None = None) -> Tensor:
        """Logits [rows, vocab_size] of each row's last token, in `out` where it is given."""
        metadata = self.backend.prepare(inputs.attention, self.dtype)
        decoding = inputs.attention.is_decode
        token_ids = self.ops.feed_tokens(inputs.token_ids, self.sampled)
        hidden = self.model(token_ids, inputs.positions, inputs.slot_mapping, self.caches, metadata, decoding)
        last = hidden if decoding else hidden[inputs.last_indices]
        return self.model.compute_logits(last, decoding, out)

    def sample(self, logits: Tensor, tensors: Mapping[str, Tensor]) -> None:
        """Draw a token for each row from the whole vocabulary, into `self.sampled`."""
        own = {name: tensors[name] for name in ("temperatures", "keys", "draws")}
        self.draw(logits, **own, out=self.sampled[: len(logits)])

    @contextmanager
    def ready(self, step: HostStep) -> Iterator[None]:
        """Where `compute` is to be called."""
        with torch.inference_mode(), self.threads(step), self.on_device():
            yield

    def threads(self, step: HostStep) -> AbstractContextManager[None]:
        """One thread for the short steps of a small model on the CPU: more would mostly wait for each other."""
        small = not self.on_gpu and self.model_config.layer_bytes(self.dtype) <= CORE_CACHE_BYTES
        return one_thread() if small and len(step.arrays["token_ids"]) <= SHORT_STEP_TOKENS else nullcontext()

    def on_device(self) -> AbstractContextManager[object]:
        """Make this runner's GPU the current one inside the block, and nowhere else."""
        return torch.cuda.device(self.device) if self.on_gpu else nullcontext()

    def top_candidates(self, seq_id: int, k: int) -> list[tuple[int, float]]:
        """The k most likely next tokens of a sequence in the last step, with their probabilities at temperature 1.

        Raises:
            ValueError: the sequence was not in the last step, or k is below 1.
        """
        if self.last_logits is None or seq_id not in self.sampled_in:
            raise ValueError(f"sequence {seq_id} was not in the last step; it held {sorted(self.sampled_in)}")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        logits = self.last_logits[self.sampled_in[seq_id]]
        probs, ids = logits.float().softmax(dim=-1).topk(min(k, self.vocab_size))
        return list(zip(ids.tolist(), probs.tolist(), strict=True))

    def close(self) -> None:
        """Give the memory back. The runner cannot run afterwards; closing twice is fine."""
        if self.on_gpu and self.slots:
            torch.cuda.synchronize(self.device)
        self.sampled_in.clear()
        self.closed = True
        for owner in ("graphs", "model", "caches", "backend", "buffers", "slots", "sampled", "graph_logits"):
            vars(self).pop(owner, None)
        self.slots, self.last_logits = [], None
        if self.on_gpu:
            torch.cuda.empty_cache()


def make_kernels(device: torch.device, backend: str) -> tuple[Ops, Draw]:
    """Everything between matrix products and attention, and the draw of a token: fused kernels where Triton runs,
    plain PyTorch elsewhere and beside the plain backend."""
    if backend == "torch" or not (device.type == "cuda" or interpreted(backend)):
        return TorchOps(), sampler.sample
    if interpreted(backend):
        repair_interpreter()
    from nanoinfer.kernels.ops import TritonOps
    from nanoinfer.kernels.sampling import sample

    return TritonOps(), sample


def resolve_device(name: str, index: int = 0) -> torch.device:
    """The device of that name, GPU number `index`; "auto" is CUDA where there is some. Raises ValueError for one that
    is not there."""
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be one of auto, cpu, cuda, got {name!r}")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ValueError("device='cuda', but torch finds no CUDA device here; use device='cpu' or 'auto'")
    if not available or name == "cpu":
        return torch.device("cpu")
    if index >= torch.cuda.device_count():
        raise ValueError(f"this rank needs {index + 1} GPUs on its machine, torch finds {torch.cuda.device_count()}")
    return torch.device("cuda", index)


def resolve_dtype(name: str, device: torch.device, model: Qwen3Config) -> torch.dtype:
    """The dtype of that name; "auto" is float32 on the CPU and the checkpoint's own on a GPU."""
    chosen = name if name != "auto" else "float32" if device.type == "cpu" else model.dtype
    if chosen not in DTYPES:
        raise ValueError(f"dtype must be one of auto, {', '.join(DTYPES)}; the checkpoint's own is {chosen!r}")
    return DTYPES[chosen]
