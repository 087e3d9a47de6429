"""From logits to one token per sequence: greedy, temperature, top-k, top-p, with a seed for each request.

Sampling is a race: token i finishes after an exponential time of rate p_i, and token i wins with probability p_i (the
Gumbel-max trick in its exponential form; Gumbel, 1954). The race is run on the numbers of `random_numbers.py`.

This is the reference; `nanoinfer/kernels/sampling.py` runs the same race, with the same numbers, on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor

from nanoinfer.core.sequence import Sequence
from nanoinfer.runner.host_step import Arrays, Filters
from nanoinfer.runner.random_numbers import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    exponential,
    request_key,
    splitmix64,
    token_bits,
)


def sampling_arrays(seqs: Seq[Sequence], engine_seed: int, rows: int = 0) -> Arrays:
    """What the sampler reads: "temperatures", "keys" and "draws", see `host_step.array_shapes`.

    Args:
        seqs: one for each row.
        engine_seed: requests without a seed of their own get a key from it and their id.
        rows: fill up with greedy rows to this many.
    """
    params = [seq.sampling_params for seq in seqs]
    padding = [0] * (rows - len(seqs))
    temperatures = [
        min(max(p.temperature, MIN_TEMPERATURE), MAX_TEMPERATURE) if p.temperature > 0 else 0 for p in params
    ]
    keys = [request_key(engine_seed, p.seed, seq.seq_id) for seq, p in zip(seqs, params, strict=True)]
    draws = [len(seq.token_ids) - seq.num_prompt_tokens for seq in seqs]
    return {
        "temperatures": np.array(temperatures + padding, np.float32),
        "keys": np.array(keys + padding, np.int64),
        "draws": np.array(draws + padding, np.int64),
    }


def filters_of(seqs: Seq[Sequence]) -> Filters | None:
    """The rows with top-k or top-p, if there are any that are not greedy."""
    params = [seq.sampling_params for seq in seqs]
    rows = [i for i, p in enumerate(params) if p.temperature > 0 and (p.top_k > 0 or p.top_p < 1)]
    return Filters(rows, [params[i].top_k for i in rows], [params[i].top_p for i in rows]) if rows else None


def sample(logits: Tensor, temperatures: Tensor, keys: Tensor, draws: Tensor, out: Tensor | None = None) -> Tensor:
    """One token id [rows], int64, for each row of logits [rows, vocab_size], from the whole vocabulary.

    `temperatures`, `keys` and `draws` are those of `sampling_arrays`, on the device of the logits. The ids go into
    `out` [rows], a new tensor when None.
    """
    tokens = logits.argmax(dim=-1)
    rows = (temperatures > 0).nonzero().squeeze(1)
    if len(rows):
        tokens[rows] = race(logits[rows], temperatures[rows], keys[rows], draws[rows])
    return tokens if out is None else out.copy_(tokens)


def sample_filtered(logits: Tensor, inputs: Mapping[str, Tensor], filters: Filters, out: Tensor) -> None:
    """Draw anew, into `out`, for the rows that `filters` names; the others keep what `sample` gave them."""
    rows = torch.tensor(filters.rows, device=logits.device)
    temperatures, keys, draws = (inputs[name][rows] for name in ("temperatures", "keys", "draws"))
    out[rows] = race(logits[rows], temperatures, keys, draws, filters.top_k, filters.top_p)


def race(
    logits: Tensor,
    temperatures: Tensor,
    keys: Tensor,
    draws: Tensor,
    top_k: list[int] | None = None,
    top_p: list[float] | None = None,
) -> Tensor:
    """Random tokens [rows] for logits [rows, vocab_size] of rows with a temperature."""
    logits = logits.float()
    # Taking the maximum off first keeps tiny temperatures from overflowing: the best token stays at 0.
    best = logits.max(dim=-1, keepdim=True).values
    scaled = (logits - best) / temperatures.clamp(min=MIN_TEMPERATURE).unsqueeze(1)
    if top_k is None or top_p is None:
        candidates, token_ids = scaled, torch.arange(scaled.shape[1], device=scaled.device).expand_as(scaled)
    else:
        candidates, token_ids = keep_likely(scaled, top_k, top_p)
    draw_keys = splitmix64(keys, draws)
    finish_times = exponential(token_bits(draw_keys.unsqueeze(1), token_ids))
    winners = (candidates - finish_times.log()).argmax(dim=-1, keepdim=True)
    return token_ids.gather(1, winners).squeeze(1)


def keep_likely(scaled: Tensor, top_k: list[int], top_p: list[float]) -> tuple[Tensor, Tensor]:
    """The candidates of each row: logits, -inf where filtered out, and their token ids, both [rows, candidates].

    Top-p (Holtzman et al., 2020) looks at what top-k has left, and always keeps the most likely token.
    """
    vocab = scaled.shape[1]
    top_k = [k if k > 0 else vocab for k in top_k]
    values, token_ids = scaled.topk(min(max(top_k), vocab), dim=-1)  # sorted, most likely first
    ranks = torch.arange(values.shape[1], device=scaled.device)
    values = values.masked_fill(ranks >= torch.tensor(top_k, device=scaled.device).unsqueeze(1), -torch.inf)
    probs = values.softmax(dim=-1)
    before = probs.cumsum(dim=-1) - probs  # of all more likely tokens; 0 for the first, which therefore stays
    enough = before >= torch.tensor(top_p, device=scaled.device).unsqueeze(1)
    return values.masked_fill(enough, -torch.inf), token_ids
