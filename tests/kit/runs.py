"""Short ways to make a runner with random weights, hand-made rows, and whole runs through the real scheduler."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nanoinfer.config import EngineConfig
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.core.scheduler import scheduler_class
from nanoinfer.core.sequence import Sequence
from nanoinfer.reasons import Stop, StopReason
from nanoinfer.runner.model_runner import ModelRunner
from nanoinfer.sampling_params import SamplingParams

SMALL = {
    "model_type": "qwen3",
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "eos_token_id": 60,
    "dtype": "bfloat16",
}
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
STOP = Stop(StopReason.QUEUE_EMPTY)


def make_runner(directory: Path, model=None, **settings) -> ModelRunner:
    """Random weights; large ones, so that the logits of neighbouring tokens are far apart."""
    (directory / "config.json").write_text(json.dumps(SMALL | (model or {})))
    settings = {"kvcache_block_size": 4, "num_kvcache_blocks": 64} | settings
    runner = ModelRunner(EngineConfig(load_format="dummy", **settings), directory)
    for name, parameter in runner.loaded.model.named_parameters():
        if not name.endswith("norm.weight"):
            parameter.mul_(10)
    return runner


def row(seq: Sequence, table: list[int], computed: int, scheduled: int, decode: bool = False) -> Row:
    """A row as the scheduler would make it."""
    seq.block_table = table
    seq.num_computed_tokens, seq.num_scheduled_tokens = computed, scheduled
    return Row(seq, None if decode else (1, 1))


def plan(phase: str, *rows: Row) -> StepPlan:
    return StepPlan(phase, list(rows), STOP, STOP)


def run_all(
    runner: ModelRunner,
    prompts: list[list[int]],
    params: SamplingParams | list[SamplingParams] = GREEDY,
    on_plan: Callable[[StepPlan], None] = lambda plan: None,
    **settings,
) -> list[list[int]]:
    """Completions of all prompts, submitted together to a scheduler over this runner."""
    config = replace(runner.config, num_kvcache_blocks=runner.num_kvcache_blocks, **settings)
    scheduler = scheduler_class(config.policy)(config)
    each = params if isinstance(params, list) else [params] * len(prompts)
    seqs = [Sequence(i, p, sp, config.kvcache_block_size) for i, (p, sp) in enumerate(zip(prompts, each, strict=True))]
    for seq in seqs:
        scheduler.add(seq)
    while not scheduler.is_finished():
        step = scheduler.schedule()
        on_plan(step)
        scheduler.postprocess(step, runner.run(step).token_ids)
    return [seq.completion_token_ids for seq in seqs]
