"""Small random Qwen3 checkpoints, written by transformers itself, and logits of this engine to compare with it."""

import json
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from nanoinfer.config import EngineConfig
from nanoinfer.core.plan import Row
from nanoinfer.core.sequence import Sequence
from nanoinfer.runner.attention import AttentionBatch
from nanoinfer.runner.inputs import to_tensors
from nanoinfer.runner.model_runner import ModelRunner

SMALL = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "eos_token_id": 60,
}
BLOCK = 4


def save_reference(directory: Path, max_shard_size: str = "1GB", **changes) -> Qwen3ForCausalLM:
    """A Qwen3 saved by transformers. Every parameter is random, so that one left out or swapped shows."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**(SMALL | changes))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.2)
    model.save_pretrained(directory, max_shard_size=max_shard_size)
    return model


def edit_config(directory: Path, **changes) -> None:
    """Change fields of a saved config.json; None removes one."""
    path = directory / "config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in raw.items() if value is not None}))


def load(directory: Path, **settings) -> ModelRunner:
    return ModelRunner(EngineConfig(kvcache_block_size=BLOCK, num_kvcache_blocks=64, **settings), directory)


def logits_of(runner: ModelRunner, prompts: list[list[int]]) -> list[torch.Tensor]:
    """Logits at every position of every prompt, all in one batch and each in blocks of its own."""
    rows, next_block = [], 0
    for seq_id, tokens in enumerate(prompts):
        seq = Sequence(seq_id, tokens, block_size=BLOCK)
        seq.block_table = list(range(next_block, next_block + seq.num_blocks))
        seq.num_scheduled_tokens = len(tokens)
        next_block += seq.num_blocks
        rows.append(Row(seq, (1, 1)))
    loaded, lens = runner.loaded, [len(tokens) for tokens in prompts]
    at = to_tensors(runner.prepare_prefill(rows))
    batch = AttentionBatch(lens, lens, at["query_starts"], at["context_lens"], at["block_tables"], BLOCK)
    attention = loaded.backend.prepare(batch, runner.dtype)
    with torch.inference_mode():
        token_ids, positions, slots = at["token_ids"], at["positions"], at["slot_mapping"]
        hidden = loaded.model(token_ids, positions, slots, loaded.caches, attention, False)
        return list(loaded.model.compute_logits(hidden, False).split(lens))
