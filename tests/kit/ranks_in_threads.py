"""Ranks as threads of one process, each with its own connections to the others, and checkpoints for them to share."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.distributed import HashStore

from nanoinfer import EngineConfig, SamplingParams, Scheduler, Sequence
from nanoinfer.parallel.group import ProcessRanks
from nanoinfer.parallel.runner import ParallelRunner, Team
from nanoinfer.runner.model_runner import ModelRunner

SMALL = {
    "model_type": "qwen3",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "eos_token_id": 60,
    "tie_word_embeddings": True,
}
LIMITS = {"kvcache_block_size": 4, "num_kvcache_blocks": 64, "max_num_batched_tokens": 32}
SECONDS = 60


def save_checkpoint(directory: Path, num_files: int = 1, **changes: Any) -> Path:
    """Every parameter random and large, so that one which is left out, swapped or cut elsewhere shows."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(SMALL | changes))
    whole = ModelRunner(EngineConfig(load_format="dummy", **LIMITS), directory).loaded.model
    generator = torch.Generator().manual_seed(7)
    tensors = {
        name: torch.randn(p.shape, generator=generator) * 0.2 + (1.0 if name.endswith("norm.weight") else 0.0)
        for name, p in whole.named_parameters()
    }
    if num_files == 1:
        save_file(tensors, directory / "model.safetensors")
        return directory
    weight_map = {name: f"model-{i % num_files}.safetensors" for i, name in enumerate(tensors)}
    for file in set(weight_map.values()):
        save_file({name: t for name, t in tensors.items() if weight_map[name] == file}, directory / file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return directory


def on_ranks(size: int, do: Callable[[ProcessRanks], Any]) -> list[Any]:
    """do(ranks) on each of `size` ranks at once; what they returned, by rank."""
    store, results, errors = HashStore(), [None] * size, []

    def run(rank: int) -> None:
        try:
            results[rank] = do(ProcessRanks(store, rank, size, torch.device("cpu"), "127.0.0.1"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not errors:
            thread.join(SECONDS if size == 1 else 0.05)
    if errors:
        raise errors[0]
    return results


Seen = list[tuple[list[int], torch.Tensor]]  # sampled ids and logits of each step


def serve_watched(directory: Path, ranks: ProcessRanks, **settings: Any) -> Seen:
    """What a worker does, and what it sees while it does."""
    runner = ModelRunner(EngineConfig(**LIMITS | settings), directory, ranks)
    seen: Seen = []
    while step := ranks.receive():
        with runner.loaded.ready(step):
            seen.append((runner.loaded.compute(step).tolist(), runner.loaded.last_logits.clone()))
    return seen


def lead_watched(runner: ModelRunner, prompts: list[list[int]], params: list[SamplingParams]) -> Seen:
    """Complete the prompts through the real scheduler; what each step gave."""
    scheduler, seen = Scheduler(runner.config), []
    for i, (ids, p) in enumerate(zip(prompts, params, strict=True)):
        scheduler.add(Sequence(i, ids, p, runner.config.kvcache_block_size))
    while not scheduler.is_finished():
        plan = scheduler.schedule()
        tokens = runner.run(plan).token_ids
        seen.append((tokens, runner.loaded.last_logits.clone()))
        scheduler.postprocess(plan, tokens)
    return seen


def watch_all(size: int, directory: Path, prompts: list[list[int]], params: list[SamplingParams], **settings) -> Any:
    """The steps as each of `size` ranks saw them."""

    def do(ranks: ProcessRanks) -> Seen:
        if ranks.rank > 0:
            return serve_watched(directory, ranks, **settings)
        runner = ParallelRunner(EngineConfig(**LIMITS | settings), directory, Team(ranks))
        seen = lead_watched(runner, prompts, params)
        runner.close()
        return seen

    return on_ranks(size, do)


def watch_one(directory: Path, prompts: list[list[int]], params: list[SamplingParams], **settings) -> Seen:
    """The same steps on one device."""
    return lead_watched(ModelRunner(EngineConfig(**LIMITS | settings), directory), prompts, params)
