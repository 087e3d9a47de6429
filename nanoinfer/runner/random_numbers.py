"""The random numbers of sampling: a pure function of (request, number of completion tokens, token id).

There is no generator whose state batching, chunking, preemption or a lost step could disturb. Numbers come from
SplitMix64 (Steele, Lea and Flood, 2014), whose n-th output can be had without the ones before it, in two levels:

- a request has a 64-bit key, hashed once from its seed;
- its n-th draw has a key of its own, output n of the generator that starts at the request's key;
- tokens t and t + 64 share an output of the generator that starts at the draw's key, and get 32 bits each: a hash
  for every token would be most of the work of sampling.

The mixing step is a bijection that scatters its inputs over all 64-bit numbers. Streams of two draws, of one request
or of two, share numbers only where their keys lie fewer than a vocabulary of increments apart: one pair in 10^13.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch
from torch import Tensor

MIN_TEMPERATURE = 1e-10  # below this a temperature is 0 in float32 arithmetic, and 0/0 would be nan
MAX_TEMPERATURE = 1e30  # far above this it is infinite there, and -inf over it would be nan
GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer, likewise the next two
MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
PAIR = 64  # distance of the two tokens that share an output: far enough for each of them to be read in long runs


@lru_cache(maxsize=1 << 14)
def request_key(engine_seed: int, seed: int | None, seq_id: int) -> int:
    """Signed 64-bit key of a request, the same in every process. Without a seed of its own the request gets one from
    the engine's and its id."""
    source = f"engine {engine_seed} request {seq_id}" if seed is None else f"seed {seed}"
    return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=8).digest(), "little", signed=True)


def splitmix64(keys: Tensor, counters: Tensor) -> Tensor:
    """Output number `counter`, from 0, of the generator started at `key`; both int64, and they broadcast."""
    bits = keys + (counters + 1) * GOLDEN  # int64 arithmetic wraps around
    bits = (bits ^ logical_shift(bits, 30)) * MIX_1
    bits = (bits ^ logical_shift(bits, 27)) * MIX_2
    return bits ^ logical_shift(bits, 31)


def logical_shift(bits: Tensor, count: int) -> Tensor:
    """Shift int64 right by at least one and fill with zeros; torch's own shift repeats the sign."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def token_bits(draw_keys: Tensor, token_ids: Tensor) -> Tensor:
    """The 32 bits, as int64, of each token in a draw; both arguments int64, and they broadcast.

    Bit 6 of a token id chooses the half of an output (0 the lower one), and the other bits, closed up, its number.
    """
    numbers = (token_ids // (2 * PAIR)) * PAIR + token_ids % PAIR
    half = token_ids // PAIR % 2
    return (splitmix64(draw_keys, numbers) >> (32 * half)) & 0xFFFFFFFF


def exponential(bits: Tensor) -> Tensor:
    """Exponential(1) draws, float32, finite and above 0, from 32 random bits each.

    The uniform number is at least 2^-32, so its logarithm is finite.
    """
    uniform = (bits.float() + 1) * 2.0**-32
    return -torch.log1p(-uniform.clamp(max=1 - 2.0**-24))
