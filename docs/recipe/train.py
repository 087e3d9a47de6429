"""Train the tiny Qwen3 from scratch, on one GPU or (for a small trial) on the CPU.

The length of a run is a time, not a number of steps: the learning rate follows the clock, so every
run ends with a finished schedule.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

WARMUP_STEPS = 200
REPORT_EVERY = 200
DOCUMENTS_PER_CALL = 5000  # what the tokenizer gets at once
LARGEST_ID = np.iinfo(np.int16).max


@dataclass(frozen=True)
class Corpus:
    """All documents in one row of token ids, and the positions where a document starts."""

    ids: torch.Tensor
    training_starts: torch.Tensor
    held_out_starts: torch.Tensor


def tokenized_documents(files: list[Path], tokenizer: Any) -> Iterator[np.ndarray]:
    """The token ids of each document; each ends with <|endoftext|>."""
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    for path in sorted(files):
        with path.open(encoding="utf-8") as file:
            texts = [json.loads(line)["text"] for line in file]
        for first in range(0, len(texts), DOCUMENTS_PER_CALL):
            for ids in tokenizer(texts[first : first + DOCUMENTS_PER_CALL], add_special_tokens=False).input_ids:
                yield np.asarray(ids if ids[-1] == end else [*ids, end], dtype=np.int16)


def read_corpus(files: list[Path], tokenizer: Any, window: int, device: str) -> Corpus:
    """Tokenize the files. The last documents, one in 200 but at least 64, are held out."""
    began = time.time()
    documents = list(tokenized_documents(files, tokenizer))
    ids = np.concatenate(documents)
    starts = np.cumsum([0] + [len(document) for document in documents[:-1]])
    starts = starts[starts < len(ids) - window - 2]  # a window must not run over the end
    held_out = max(len(starts) // 200, 64)
    if len(starts) <= held_out:
        raise SystemExit(
            f"error: {len(documents)} documents leave {len(starts)} windows of {window} tokens, more than {held_out} "
            "are needed: give more documents or a smaller --window"
        )
    print(f"{len(ids)} tokens {len(starts)} docs in {time.time() - began:.0f}s", flush=True)
    on_device = torch.tensor(starts, device=device)
    return Corpus(torch.from_numpy(ids).to(device), on_device[:-held_out], on_device[-held_out:])


def model_config(arguments: argparse.Namespace, tokenizer: Any) -> Qwen3Config:
    """The shape of the model. What is not an option is what makes it a Qwen3."""
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=arguments.hidden,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.heads,
        num_key_value_heads=arguments.kv_heads,
        head_dim=arguments.head_dim,
        intermediate_size=arguments.intermediate,
        max_position_embeddings=arguments.window,  # later positions are never trained
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        attention_bias=False,
        use_sliding_window=False,
        rms_norm_eps=1e-6,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.02,
        attention_dropout=0.0,
    )


def make_optimizer(model: torch.nn.Module, rate: float, device: str) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only: a norm weight pulled to zero would only hurt."""
    parameters = list(model.parameters())
    groups = [
        {"params": [weight for weight in parameters if weight.dim() > 1], "weight_decay": 0.1},
        {"params": [weight for weight in parameters if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=device == "cuda")


def rate_factor(step: int, progress: float) -> float:
    """The learning rate as a part of its peak: linear warm-up, flat for 30 % of the time, then a cosine to 2 %."""
    warmup = min(1, (step + 1) / WARMUP_STEPS)
    if progress < 0.3:
        return warmup
    return warmup * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (progress - 0.3) / 0.7)))


def draw_windows(ids: torch.Tensor, starts: torch.Tensor, batch: int, window: int) -> torch.Tensor:
    """Random windows that begin where a document begins, so no answer lacks the question before it.

    One token longer than the model's input: shifted by one, the window is also the target.
    """
    chosen = starts[torch.randint(len(starts), (batch,), device=ids.device)]
    return ids[chosen[:, None] + torch.arange(window + 1, device=ids.device)].long()


def next_token_loss(forward: Callable[..., Any], windows: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of each next token; the model computes in bfloat16, the loss in float32."""
    with torch.autocast(windows.device.type, torch.bfloat16):
        logits = forward(input_ids=windows[:, :-1], use_cache=False).logits
    return cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())


def train(model: Any, corpus: Corpus, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Train until the time is over and return the log."""
    device, batch, window = corpus.ids.device.type, arguments.batch, arguments.window
    forward = torch.compile(model) if device == "cuda" and not arguments.eager else model
    optimizer = make_optimizer(model, arguments.rate, device)
    log: list[dict[str, float]] = []
    step, began = 0, time.time()
    while (progress := (time.time() - began) / (arguments.minutes * 60)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * rate_factor(step, progress)
        loss = next_token_loss(forward, draw_windows(corpus.ids, corpus.training_starts, batch, window))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % REPORT_EVERY == 0:
            with torch.no_grad():
                held_out = next_token_loss(forward, draw_windows(corpus.ids, corpus.held_out_starts, batch, window))
            seconds, tokens = time.time() - began, step * batch * window
            record = {
                "step": step,
                "sec": round(seconds),
                "tokens": tokens,
                "tok_s": round(tokens / seconds),
                "loss": round(loss.item(), 4),
                "val": round(held_out.item(), 4),
            }
            log.append(record)
            print(json.dumps(record), flush=True)
    print(f"{step} steps in {time.time() - began:.0f}s", flush=True)
    return log


def save(model: Any, tokenizer: Any, log: list[dict[str, float]], output: Path) -> None:
    """Write the model in bfloat16, its tokenizer and the log."""
    model.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    # An answer ends with <|im_end|>; a text without a chat around it ends with <|endoftext|>.
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    (output / "train_log.json").write_text(json.dumps(log), encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    """The command line; its defaults are the values of the shipped model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path, help="folder written by make_tokenizer.py")
    parser.add_argument("output", type=Path, help="folder to write the model to")
    parser.add_argument("corpus", type=Path, nargs="+", help=".jsonl files, read in the order of their names")
    parser.add_argument("--minutes", type=float, required=True, help="time to train, without reading the corpus")
    parser.add_argument("--window", type=int, default=2048, help="tokens in a training window (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="windows in a step (%(default)s)")
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate (%(default)s)")
    parser.add_argument("--hidden", type=int, default=256, help="hidden size (%(default)s)")
    parser.add_argument("--layers", type=int, default=6, help="decoder layers (%(default)s)")
    parser.add_argument("--heads", type=int, default=8, help="query heads (%(default)s)")
    parser.add_argument("--kv-heads", type=int, default=4, help="key and value heads (%(default)s)")
    parser.add_argument("--head-dim", type=int, default=64, help="size of a head (%(default)s)")
    parser.add_argument("--intermediate", type=int, default=768, help="size inside the MLP (%(default)s)")
    parser.add_argument("--eager", action="store_true", help="do not compile the model on a GPU")
    arguments = parser.parse_args()
    if arguments.minutes <= 0:
        parser.error(f"--minutes must be above 0, got {arguments.minutes}")
    if not (arguments.tokenizer / "tokenizer.json").is_file():
        parser.error(f"no tokenizer.json in {arguments.tokenizer}: run make_tokenizer.py first")
    if missing := [str(path) for path in arguments.corpus if not path.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    return arguments


def main() -> None:
    """Read, train, save."""
    arguments = parse_arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
    if len(tokenizer) > LARGEST_ID:
        raise SystemExit(f"error: ids are kept in 16 bits, so {len(tokenizer)} tokens are too many")
    corpus = read_corpus(arguments.corpus, tokenizer, arguments.window, device)
    model: Any = Qwen3ForCausalLM(model_config(arguments, tokenizer))
    model.to(device)
    print(f"params {sum(weight.numel() for weight in model.parameters())}", flush=True)
    log = train(model, corpus, arguments)
    save(model, tokenizer, log, arguments.output)
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
