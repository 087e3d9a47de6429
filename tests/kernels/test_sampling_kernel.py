"""The sampling kernel against the torch sampler, token for token."""

import math
from collections import Counter

import pytest
import torch
from kit.comparison import DEVICE, random
from kit.helpers import slow

from nanoinfer.kernels import sampling
from nanoinfer.kernels.sampling import sample
from nanoinfer.runner import sampler
from nanoinfer.runner.random_numbers import request_key, splitmix64, token_bits

# A token without a chance finishes after an infinite time: 2 to a large power is meant to overflow.
pytestmark = pytest.mark.filterwarnings("ignore:overflow")

TEMPERATURES = [0, 1.0, 0.6, 0, 1e-6, 2.0, 1e-20, 0.01]


def parameters(temperatures, seeds, draws):
    keys = [request_key(0, seed, 0) for seed in seeds]
    columns = (temperatures, torch.float32), (keys, torch.int64), (draws, torch.int64)
    return [torch.tensor(values, dtype=dtype, device=DEVICE) for values, dtype in columns]


def reference(logits, temperatures, seeds, draws):
    return sampler.sample(logits, *parameters(temperatures, seeds, draws)).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [1, 7, 1024, 1025, slow(5000)])
def test_equal_to_the_torch_sampler_token_for_token(vocab, dtype):
    """Few rows go in small pieces, many in large ones."""
    for rows in (8, 40):
        logits = random(rows, vocab, dtype=dtype) * 4
        before = logits.clone()
        given = [TEMPERATURES[i % 8] for i in range(rows)], list(range(rows)), [3 * i % 7 for i in range(rows)]
        tokens = sample(logits, *parameters(*given))
        assert tokens.dtype == torch.int64
        assert tokens.tolist() == reference(logits, *given)
        assert torch.equal(logits, before)


def test_every_draw_of_a_request_is_the_reference_s():
    logits = random(1, 3000).expand(32, -1)
    given = [1.0] * 32, [5] * 32, list(range(32))
    tokens = sample(logits, *parameters(*given)).tolist()
    assert tokens == reference(logits, *given)
    assert len(set(tokens)) > 20


def test_the_integer_part_is_the_reference_s_bit_for_bit():
    """With equal logits the token of the smallest number wins, so a wrong bit shows as a wrong token."""
    rows = 24
    given = [1.0] * rows, list(range(rows)), list(range(rows))
    temperatures, keys, draws = parameters(*given)
    bits = token_bits(splitmix64(keys, draws).unsqueeze(1), torch.arange(4000, device=DEVICE))
    smallest = bits.argmin(dim=1)
    assert torch.equal(sample(torch.zeros(rows, 4000, device=DEVICE), temperatures, keys, draws), smallest)


def test_greedy_takes_the_first_of_equals():
    logits = torch.zeros(4, 6000, device=DEVICE)
    logits[3, [64, 63 + 128, 200]] = 2.0  # the first is in the upper half of its pair
    logits[0, [17, 18, 5999]] = 2.0
    logits[1, [4500, 5000]] = 2.0
    assert sample(logits, *parameters([0] * 4, [1, 2, 3, 4], [0] * 4)).tolist() == [17, 4500, 0, 64]


@pytest.mark.slow
def test_frequencies_are_the_probabilities(monkeypatch):
    monkeypatch.setattr(sampling, "LARGE_PIECE", 128)  # two pieces, so that winners of pieces race too
    n, probs = 20_000 if DEVICE == "cuda" else 500, {3: 0.55, 67: 0.25, 100: 0.15, 200: 0.05}  # 3 and 67 are a pair
    row = torch.full((256,), -math.inf, device=DEVICE)
    for token, p in probs.items():
        row[token] = 2 * math.log(p)
    counts = Counter(sample(row.expand(n, -1), *parameters([2.0] * n, list(range(n)), [0] * n)).tolist())
    assert counts.keys() <= probs.keys()
    for token, p in probs.items():
        assert abs(counts[token] / n - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_pieces_without_candidates_and_extreme_logits():
    logits = torch.full((4, 5000), -math.inf, device=DEVICE)
    logits[0, 4000] = -5.0
    logits[1, [1, 4999]] = torch.tensor([-3e38, 3e38], device=DEVICE)
    logits[2] = -1e4
    logits[2, 4321] = -9e3
    logits[3, 4000] = -50.0
    assert sample(logits, *parameters([1.0, 1e-6, 0.01, 0], [1, 2, 3, 4], [0] * 4)).tolist() == [4000, 4999, 4321, 4000]


@pytest.mark.parametrize("rows", [1, 40])
def test_nothing_past_the_vocabulary_is_read_and_out_is_filled(rows):
    wide = torch.full((rows, 1500), torch.nan, device=DEVICE)
    wide[:, 100:1200] = random(rows, 1100)
    logits = wide[:, 100:1200]
    given = [float(i % 2) for i in range(rows)], list(range(rows)), [2] * rows
    out = torch.full((rows,), -1, device=DEVICE)
    assert sample(logits, *parameters(*given), out=out) is out
    assert out.tolist() == reference(logits, *given)


def test_piece_sizes_do_not_matter(monkeypatch):
    logits = random(6, 3000)
    given = parameters([1.0, 0.5, 0, 2.0, 0.1, 1.0], list(range(6)), [4] * 6)
    tokens = sample(logits, *given)
    monkeypatch.setattr(sampling, "SMALL_PIECE", 128)
    assert torch.equal(sample(logits, *given), tokens)


def test_no_rows():
    assert sample(random(0, 10), *parameters([], [], [])).shape == (0,)


def test_logits_far_from_zero_are_drawn_like_those_near_it():
    """2^23 is taken off before anything is rounded."""
    logits = random(16, 3000).round()
    given = [1.0] * 16, list(range(16)), [0] * 16
    assert sample(logits + 2**23, *parameters(*given)).tolist() == reference(logits, *given)


def test_late_times_are_right_too(monkeypatch):
    """With two tokens the winner is often late: there the logarithm is taken another way than for early ones."""
    monkeypatch.setattr(sampling, "LARGE_PIECE", 128)
    rows = 150
    logits = torch.tensor([0.0, -math.log(2)], device=DEVICE).expand(rows, -1)
    given = [1.0] * rows, list(range(rows)), [0] * rows
    assert sample(logits, *parameters(*given)).tolist() == reference(logits, *given)
