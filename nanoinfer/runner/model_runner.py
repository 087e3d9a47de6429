"""Runs plans: makes arrays of them, has the loaded model compute these, and gives back the sampled tokens.

It decides nothing: which rows run and which blocks they use is the scheduler's plan, and what becomes of the
sampled tokens is the scheduler's `postprocess`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from pathlib import Path

import torch

from nanoinfer.config import EngineConfig
from nanoinfer.core.overlap.in_flight import Done
from nanoinfer.core.plan import Row, StepPlan, StepResult
from nanoinfer.models.parallel import Ranks
from nanoinfer.runner import sampler
from nanoinfer.runner.host_step import Arrays, HostStep
from nanoinfer.runner.in_flight import InFlight
from nanoinfer.runner.inputs import decode_arrays, prefill_arrays
from nanoinfer.runner.loaded_model import LoadedModel


class ModelRunner:
    """Computes the plans of one scheduler.

    Arguments, attributes and the ValueError for a bad setting or checkpoint are those of `LoadedModel`; without
    `ranks`, one device holds the whole model.
    """

    def __init__(self, config: EngineConfig, model_dir: Path, ranks: Ranks | None = None) -> None:
        self.config = config
        loaded = LoadedModel(config, model_dir, ranks or Ranks())
        self._loaded: LoadedModel | None = loaded
        self.model_config = loaded.model_config
        self.device, self.dtype, self.on_gpu = loaded.device, loaded.dtype, loaded.on_gpu
        self.num_kvcache_blocks = loaded.num_kvcache_blocks
        self.sampled_in: dict[int, int] = {}  # the row each sequence had in the last step

    @property
    def loaded(self) -> LoadedModel:
        """The model and its memory. Raises RuntimeError once the runner is closed."""
        if self._loaded is None:
            raise RuntimeError("this runner is closed and has given its model back; make a new engine")
        return self._loaded

    @property
    def closed(self) -> bool:
        """Whether the memory was given back."""
        return self._loaded is None

    @property
    def max_position_embeddings(self) -> int:
        return self.model_config.max_position_embeddings

    @property
    def vocab_size(self) -> int:
        return self.model_config.vocab_size

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.model_config.eos_token_ids

    # ---- from plan to arrays --------------------------------------------------------------

    def prepare_prefill(self, rows: Seq[Row]) -> Arrays:
        """Inputs of whole prompts, chunks, and, in a mixed plan, decodes among them."""
        return prefill_arrays(rows, self.config.kvcache_block_size, self.loaded.table_width, self.sampled_in)

    def prepare_decode(self, rows: Seq[Row], padded_rows: int = 0) -> Arrays:
        """Inputs of rows that each compute their last token, filled up with rows that do nothing."""
        width = self.loaded.table_width
        return decode_arrays(rows, self.config.kvcache_block_size, width, self.sampled_in, padded_rows)

    def host_step(self, plan: StepPlan) -> HostStep:
        """The plan as arrays, padded where a graph will run it."""
        decode, graphs = plan.phase == "decode", self.loaded.graphs
        graph_size = graphs.size_for(len(plan.rows)) if graphs and decode else None
        # The longest first: a short row that starts late is soon done, a long one would keep the GPU busy alone.
        order = list(range(len(plan.rows)))
        if graph_size:
            order.sort(key=lambda i: -len(plan.rows[i].seq.token_ids))
        rows = [plan.rows[i] for i in order]
        inputs = self.prepare_decode(rows, graph_size or 0) if decode else self.prepare_prefill(rows)
        seqs = [row.seq for row in rows]
        arrays = sampler.sampling_arrays(seqs, self.config.seed, graph_size or 0) | inputs
        places = sorted(range(len(order)), key=order.__getitem__)  # the inverse of `order`
        return HostStep(places, arrays, graph_size, sampler.filters_of(seqs))

    # ---- one step -------------------------------------------------------------------------

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

    def enter(self, step: HostStep, began: float) -> Done | InFlight:
        """Compute a step whose launch `began` then, or on a GPU begin to."""
        loaded = self.loaded
        with loaded.ready(step):
            if self.on_gpu:
                return loaded.start(step, self.check, began)
            token_ids = loaded.compute(step).tolist()
            return Done(StepResult(token_ids, {"launch": time.perf_counter() - began}))

    def check(self) -> None:
        """Called again and again while a step in flight is waited for; raises when it cannot end well."""

    def top_candidates(self, seq_id: int, k: int) -> list[tuple[int, float]]:
        """The k most likely next tokens of a sequence in the last step, with their probabilities at temperature 1.

        Raises:
            ValueError: the sequence was not in the last step, or k is below 1.
        """
        logits = self.loaded.last_logits
        if logits is None or seq_id not in self.sampled_in:
            raise ValueError(f"sequence {seq_id} was not in the last step; it held {sorted(self.sampled_in)}")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        row = logits[self.sampled_in[seq_id]]
        probs, ids = row.float().softmax(dim=-1).topk(min(k, self.vocab_size))
        return list(zip(ids.tolist(), probs.tolist(), strict=True))

    def close(self) -> None:
        """Give the memory back. The runner cannot run afterwards; closing twice is fine."""
        if self._loaded:
            self._loaded.close()
        self._loaded = None
        self.sampled_in.clear()
        if self.on_gpu:
            torch.cuda.empty_cache()
