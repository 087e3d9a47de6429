"""One token for each row of logits, greedy or drawn, in two passes: over pieces of the vocabulary, then over pieces.

The draw is the race of `runner/sampler.py` with the numbers of `runner/random_numbers.py`, bit for bit up to the
uniform number. Logits are read once, and nothing of their size is written. A piece subtracts its own maximum from its
logits, and the second pass puts the pieces back on one scale, so that small temperatures lose no precision. Most of
the work is random bits, so the race is run over times, not their logarithms, and all powers and logarithms are base 2.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import libdevice

from nanoinfer.kernels.dependent_launch import LAUNCH, wait_for_predecessor
from nanoinfer.runner import random_numbers

UNSIGNED = (1 << 64) - 1
GOLDEN = tl.constexpr(random_numbers.GOLDEN & UNSIGNED)
MIX_1 = tl.constexpr(random_numbers.MIX_1 & UNSIGNED)
MIX_2 = tl.constexpr(random_numbers.MIX_2 & UNSIGNED)
PAIR = tl.constexpr(random_numbers.PAIR)
MIN_TEMPERATURE = tl.constexpr(random_numbers.MIN_TEMPERATURE)
LOG2_E = tl.constexpr(1.4426950408889634)

# Tokens of one piece, whole pairs of runs: small ones spread a few rows over the whole GPU, large ones spend less on
# finding a maximum.
FEW_ROWS, SMALL_PIECE, LARGE_PIECE = 16, 1024, 4096


def sample(logits: Tensor, temperatures: Tensor, keys: Tensor, draws: Tensor, out: Tensor | None = None) -> Tensor:
    """One token id for each row: the first of the largest logits where the temperature is 0, else a draw.

    Args:
        logits: [rows, vocab], bfloat16 or float32, contiguous along the vocabulary.
        temperatures: float32 [rows].
        keys: int64 [rows]: the requests' keys, see `random_numbers.request_key`.
        draws: int64 [rows]: the number of each request's draw, from 0.
        out: int64 [rows], where the tokens go; a new tensor when None.

    Returns:
        int64 [rows].
    """
    rows, vocab = logits.shape
    piece = SMALL_PIECE if rows <= FEW_ROWS else LARGE_PIECE
    pieces = triton.cdiv(vocab, piece)
    scales = torch.empty((2, rows, pieces), dtype=torch.float32, device=logits.device)
    tokens = torch.empty((rows, pieces), dtype=torch.int32, device=logits.device)
    if out is None:
        out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    parameters = temperatures, keys, draws
    winners = scales[0], scales[1], tokens
    _race_in_pieces[(pieces, rows)](logits, *parameters, *winners, logits.stride(0), vocab, piece, **LAUNCH)
    block = triton.next_power_of_2(pieces)
    _race_of_pieces[(rows,)](temperatures, *winners, out, pieces, block, num_warps=1, **LAUNCH)
    return out


# Small arrays, which may begin anywhere: their alignment makes no variant of a kernel.
SMALL_ARRAYS = ["temperatures_ptr", "keys_ptr", "draws_ptr", "shifts_ptr", "scores_ptr", "tokens_ptr", "out_ptr"]


@triton.jit(do_not_specialize_on_alignment=SMALL_ARRAYS)
def _race_in_pieces(
    logits_ptr: tl.tensor,
    temperatures_ptr: tl.tensor,
    keys_ptr: tl.tensor,
    draws_ptr: tl.tensor,
    shifts_ptr: tl.tensor,
    scores_ptr: tl.tensor,
    tokens_ptr: tl.tensor,
    logits_stride: int,
    vocab: int,
    PIECE: tl.constexpr,
) -> None:
    """The winner of one piece of a row: its token, its score, and the logit that the scores are relative to."""
    row = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * (PIECE // 2)
    wait_for_predecessor()
    numbers = start + tl.arange(0, PIECE // 2)  # of the outputs that pairs of tokens share
    lower_tokens = _token(numbers)
    places = logits_ptr + row * logits_stride + lower_tokens
    lower = tl.load(places, mask=lower_tokens < vocab, other=float("-inf")).to(tl.float32)
    upper = tl.load(places + PAIR, mask=lower_tokens + PAIR < vocab, other=float("-inf")).to(tl.float32)
    temperature = tl.load(temperatures_ptr + row)
    score, winner = _larger(lower, upper, start)
    shift = tl.full([], 0.0, tl.float32)
    if temperature > 0:
        shift = score
        draw_key = _splitmix64(tl.load(keys_ptr + row).to(tl.uint64), tl.load(draws_ptr + row).to(tl.uint64))
        bits = _splitmix64(draw_key, numbers.to(tl.uint64))
        sharpness = _sharpness(temperature)
        lower_times = _exponential(bits.to(tl.uint32)) * _slowness(lower, shift, sharpness)
        upper_times = _exponential((bits >> 32).to(tl.uint32)) * _slowness(upper, shift, sharpness)
        speed, winner = _larger(-lower_times, -upper_times, start)
        score = -tl.log2(-speed)
    place = row * tl.num_programs(0) + tl.program_id(0)
    tl.store(shifts_ptr + place, shift)
    tl.store(scores_ptr + place, score)
    tl.store(tokens_ptr + place, winner)


@triton.jit
def _token(number: tl.tensor) -> tl.tensor:
    """The lower of the two tokens that share output `number`, see `random_numbers.token_bits`; the other is number
    PAIR after it."""
    return number // PAIR * (2 * PAIR) + number % PAIR


@triton.jit
def _larger(lower: tl.tensor, upper: tl.tensor, start: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """The largest value of the pairs from number `start` on, and its token: the first of equals."""
    lower_best, lower_number = tl.max(lower, axis=0, return_indices=True)
    upper_best, upper_number = tl.max(upper, axis=0, return_indices=True)
    lower_token, upper_token = _token(start + lower_number), _token(start + upper_number) + PAIR
    is_upper = (upper_best > lower_best) | ((upper_best == lower_best) & (upper_token < lower_token))
    return tl.maximum(lower_best, upper_best), tl.where(is_upper, upper_token, lower_token)


@triton.jit
def _slowness(logits: tl.tensor, shift: tl.tensor, sharpness: tl.tensor) -> tl.tensor:
    """1 for the best logit, more for others, infinite for -inf."""
    return tl.exp2((_finite(shift) - logits) * sharpness)


@triton.jit(do_not_specialize_on_alignment=SMALL_ARRAYS)
def _race_of_pieces(
    temperatures_ptr: tl.tensor,
    shifts_ptr: tl.tensor,
    scores_ptr: tl.tensor,
    tokens_ptr: tl.tensor,
    out_ptr: tl.tensor,
    pieces: int,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    places = row * pieces + columns
    wait_for_predecessor()
    shifts = tl.load(shifts_ptr + places, mask=columns < pieces, other=float("-inf"))
    scores = tl.load(scores_ptr + places, mask=columns < pieces, other=float("-inf"))
    shifts = (shifts - _finite(tl.max(shifts, axis=0))) * _sharpness(tl.load(temperatures_ptr + row))
    winner = tl.argmax(scores + shifts, axis=0)
    tl.store(out_ptr + row, tl.load(tokens_ptr + row * pieces + winner).to(tl.int64))


@triton.jit
def _sharpness(temperature: tl.tensor) -> tl.tensor:
    """What turns a difference of logits into the base-2 logarithm of a ratio of probabilities."""
    return LOG2_E / tl.maximum(temperature, MIN_TEMPERATURE)


@triton.jit
def _finite(shift: tl.tensor) -> tl.tensor:
    """0 for the maximum of a piece that has no candidate, which may be taken off -inf."""
    return tl.where(shift == float("-inf"), 0.0, shift)


@triton.jit
def _splitmix64(key: tl.tensor, counter: tl.tensor) -> tl.tensor:
    """`random_numbers.splitmix64` in unsigned arithmetic."""
    bits = key + GOLDEN + counter * GOLDEN
    bits = (bits ^ (bits >> 30)) * MIX_1
    bits = (bits ^ (bits >> 27)) * MIX_2
    return bits ^ (bits >> 31)


@triton.jit
def _exponential(bits: tl.tensor) -> tl.tensor:
    """`random_numbers.exponential` in units of log 2, which all tokens share.

    There is no log1p: below 2^-5 the series of -log(1 - u) is exact to float32, above it 1 - u loses little.
    """
    uniform = tl.minimum((bits.to(tl.float32) + 1) * 2.0**-32, 1 - 2.0**-24)
    small = uniform * (1 + uniform * (1 / 2 + uniform * (1 / 3 + uniform * (1 / 4))))
    return tl.where(uniform < 2.0**-5, small * LOG2_E, -libdevice.fast_log2f(1 - uniform))
