"""From logits to one token per sequence: greedy, temperature, top-k, top-p, with a seed for each request.

Sampling is a race: token i finishes after an exponential time of rate p_i, and the first one home is drawn with
probability p_i (the Gumbel-max trick in its exponential form; Gumbel, 1954). The random numbers are a pure function
of (request key, number of completion tokens, token id), so there is no generator whose state batching, chunking,
preemption or a lost step could disturb.

This is the reference; `nanoinfer/kernels/sampling.py` runs the same race, with the same numbers, on a GPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nanoinfer.core.sequence import Sequence

MIN_TEMPERATURE = 1e-10  # below this a temperature is 0 in float32 arithmetic, and 0/0 would be nan
GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer, likewise the next two
MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


@dataclass(frozen=True, slots=True)
class Filters:
    """The rows of a step that draw from a part of the vocabulary, with their top_k (0: all) and top_p (1: all)."""

    rows: list[int]
    top_k: list[int]
    top_p: list[float]


def sampling_arrays(seqs: Seq[Sequence], engine_seed: int, rows: int = 0) -> dict[str, npt.NDArray[Any]]:
    """What a device needs to know of each row to sample it: "temperatures" (0 is greedy), "keys" and "draws".

    Args:
        seqs: one for each row.
        engine_seed: requests without a seed of their own get a key from it and their id.
        rows: make it so many with greedy rows.
    """
    params = [seq.sampling_params for seq in seqs]
    padding = [0] * (rows - len(seqs))
    temperatures = [max(p.temperature, MIN_TEMPERATURE) if p.temperature > 0 else 0 for p in params]
    keys = [
        request_key(engine_seed, seq.seq_id) if p.seed is None else seeded_key(p.seed)
        for seq, p in zip(seqs, params, strict=True)
    ]
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


def sample(logits: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """One token id [rows], int64, for each row of logits [rows, vocab_size], from the whole vocabulary.

    Args:
        logits: any dtype; not changed.
        inputs: the arrays of `sampling_arrays`, on the device of the logits.
    """
    tokens = logits.argmax(dim=-1)
    rows = (inputs["temperatures"] > 0).nonzero().squeeze(1)
    if len(rows):
        tokens[rows] = race(logits[rows], {name: tensor[rows] for name, tensor in inputs.items()})
    return tokens


def sample_filtered(logits: Tensor, inputs: Mapping[str, Tensor], filters: Filters) -> Tensor:
    """As `sample`, for the rows that `filters` names alone: their tokens [len(filters.rows)]."""
    rows = torch.tensor(filters.rows, device=logits.device)
    own = {name: tensor[rows] for name, tensor in inputs.items()}
    return race(logits[rows], own, filters.top_k, filters.top_p)


def race(
    logits: Tensor, inputs: Mapping[str, Tensor], top_k: list[int] | None = None, top_p: list[float] | None = None
) -> Tensor:
    """Random tokens [rows] for logits [rows, vocab_size] of rows with a temperature."""
    logits = logits.float()
    # Taking the maximum off first keeps tiny temperatures from overflowing: the best token stays at 0.
    scaled = (logits - logits.max(dim=-1, keepdim=True).values) / inputs["temperatures"].unsqueeze(1)
    if top_k is None or top_p is None:
        candidates, token_ids = scaled, torch.arange(scaled.shape[1], device=scaled.device).expand_as(scaled)
    else:
        candidates, token_ids = keep_likely(scaled, top_k, top_p)
    streams = splitmix64(inputs["keys"], inputs["draws"])
    finish_times = exponential(streams.unsqueeze(1), token_ids)
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


@lru_cache(maxsize=1 << 14)
def request_key(engine_seed: int, seq_id: int) -> int:
    """Signed 64-bit key of a request without a seed, the same in every process."""
    return hashed(f"engine {engine_seed} request {seq_id}")


@lru_cache(maxsize=1 << 14)
def seeded_key(seed: int) -> int:
    """Signed 64-bit key of a request with a seed, whatever its engine and id."""
    return hashed(f"seed {seed}")


def hashed(source: str) -> int:
    return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=8).digest(), "little", signed=True)


def splitmix64(keys: Tensor, counters: Tensor) -> Tensor:
    """Output number `counters` of SplitMix64 (Steele, Lea and Flood, 2014) started at `keys`; int64, broadcast.

    A request's key started so gives one stream key for each of its draws, and each of these, started so again, one
    number for each token id.
    """
    bits = keys + (counters + 1) * GOLDEN  # int64 arithmetic wraps around
    bits = (bits ^ logical_shift(bits, 30)) * MIX_1
    bits = (bits ^ logical_shift(bits, 27)) * MIX_2
    return bits ^ logical_shift(bits, 31)


def exponential(keys: Tensor, counters: Tensor) -> Tensor:
    """Exponential(1) draws, float32, finite and above 0, from int64 keys and counters that broadcast.

    53 of the bits make a uniform number of at least 2^-53, so its logarithm is finite.
    """
    uniform = (logical_shift(splitmix64(keys, counters), 11) + 1).float() * 2.0**-53
    return -torch.log1p(-uniform.clamp(max=1 - 2.0**-24))


def logical_shift(bits: Tensor, count: int) -> Tensor:
    """Shift int64 right and fill with zeros; torch's own shift repeats the sign."""
    return (bits >> count) & ((1 << (64 - count)) - 1)
