"""The sampler on hand-made logits."""

import math
from collections import Counter

import pytest
import torch

from nanoinfer.core.sequence import Sequence
from nanoinfer.runner import sampler
from nanoinfer.runner.random_numbers import exponential, request_key, splitmix64, token_bits
from nanoinfer.sampling_params import SamplingParams


def sequence(seq_id=0, completion=0, **params) -> Sequence:
    seq = Sequence(seq_id, [1, 2, 3], SamplingParams(**params))
    seq.token_ids += [0] * completion
    return seq


def sample(logits, *seqs, seed=0):
    logits = torch.as_tensor(logits)
    inputs = {name: torch.from_numpy(array) for name, array in sampler.sampling_arrays(seqs, seed).items()}
    tokens, filters = sampler.sample(logits, **inputs), sampler.filters_of(seqs)
    if filters:
        sampler.sample_filtered(logits, inputs, filters, tokens)
    return tokens.tolist()


def draws(logits, n=2000, **params):
    """n draws of one request: its first n tokens, were the logits always the same."""
    return sample(torch.tensor(logits).expand(n, -1), *(sequence(completion=i, **params) for i in range(n)))


def test_greedy_is_argmax():
    assert sample([[0.0, 3.0, 1.0], [5.0, -1.0, 2.0]], *(sequence(i, temperature=0) for i in range(2))) == [1, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiny_temperatures_are_greedy_and_a_minus_infinity_is_harmless(dtype):  # B68
    logits = torch.tensor([[1.0, 4.0, -math.inf, 3.5]] * 4, dtype=dtype)
    temperatures = (0, 1e-6, 1e-320, 1)  # the third is 0 in float32
    for completion in range(50):
        tokens = sample(logits, *(sequence(i, completion, temperature=t) for i, t in enumerate(temperatures)))
        assert tokens[:3] == [1, 1, 1]
        assert tokens[3] in (0, 1, 3)


def test_the_largest_temperature_draws_all_alike_and_a_minus_infinity_never():
    counts = Counter(draws([1.0, 400.0, -math.inf, -3.5], temperature=1.7e308))
    assert counts.keys() == {0, 1, 3}
    assert min(counts.values()) > 550  # of 2,000: a third, less five deviations


def test_huge_logits_stay_finite():
    assert draws([2e38, 3e38, -3e38], n=50, temperature=1e-6) == [1] * 50
    assert draws([-3e38, -3e38, 3e38], n=50, temperature=0.5, top_k=2, top_p=0.9) == [2] * 50


@pytest.mark.parametrize("top_k", [0, -1, 5, 6, 10**9])
def test_top_k_off_or_the_whole_vocabulary_changes_nothing(top_k):  # B70
    logits = [0.0, 1.0, 2.0, 0.5, 1.5]
    assert draws(logits, n=200, top_k=top_k) == draws(logits, n=200)
    assert set(draws(logits, n=200, top_k=top_k)) == set(range(5))
    assert draws(logits, n=200, top_k=top_k, top_p=0.8) == draws(logits, n=200, top_p=0.8)


def test_top_k_keeps_the_k_most_likely():
    assert set(draws([0.0, 1.0, 2.0, 0.5, 1.5], top_k=2)) == {2, 4}
    assert set(draws([0.0, 1.0, 2.0, 0.5, 1.5], top_k=1)) == {2}


def test_greedy_rows_among_filtered_ones():  # B70
    logits = torch.tensor([[0.0, 1.0, 2.0, 0.5, 1.5]]).expand(4, -1)
    seqs = [{"temperature": 0}, {"top_k": 2}, {"top_p": 0.5}, {"temperature": 0, "top_k": 3}]
    for n in range(100):
        tokens = sample(logits, *(sequence(i, n, **params) for i, params in enumerate(seqs)))
        assert tokens[0] == tokens[3] == 2
        assert tokens[1] in (2, 4)
        assert tokens[2] in (2, 4)


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    logits = [math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]
    assert set(draws(logits, top_p=0.45)) == {0}
    assert set(draws(logits, top_p=0.6)) == {0, 1}
    assert set(draws(logits, top_p=0.9)) == {0, 1, 2}
    assert set(draws(logits, top_p=1.0)) == {0, 1, 2, 3}
    assert set(draws(logits, top_p=1e-9)) == set(draws(logits, top_p=1e-50)) == {0}


def test_top_p_counts_what_top_k_left():
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]  # of the two kept, the first alone has 4/7
    assert set(draws(logits, top_k=2, top_p=0.55)) == {0}


def test_frequencies_are_the_probabilities():
    n, probs = 20_000, (0.6, 0.25, 0.1, 0.05)
    logits = torch.tensor([2 * math.log(p) for p in probs]).expand(n, -1)
    counts = Counter(sample(logits, *(sequence(i, temperature=2.0) for i in range(n))))
    for token, p in enumerate(probs):
        assert abs(counts[token] / n - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_a_draw_depends_on_the_request_alone():
    torch.manual_seed(0)
    logits = torch.randn(6, 50)
    alone = [sample(logits[i : i + 1], sequence(i, i, seed=i if i % 2 else None))[0] for i in range(6)]
    together = sample(logits, *(sequence(i, i, seed=i if i % 2 else None) for i in range(6)))
    mates = [{"temperature": 0}, {"top_k": 3}, {"top_p": 0.3}]
    crowded = sample(
        torch.cat((torch.randn(3, 50), logits)),
        *(sequence(90 + i, **params) for i, params in enumerate(mates)),
        *(sequence(i, i, seed=i if i % 2 else None) for i in range(6)),
    )
    assert alone == together == crowded[3:]


def test_seeds_hold_and_advance():  # B72
    logits = torch.zeros(2, 1000)
    runs = []
    for attempt in range(3):
        pairs = [sample(logits, sequence(2 * attempt, n, seed=42), sequence(2 * attempt + 1, n)) for n in range(8)]
        runs.append(tuple(zip(*pairs, strict=True)))
    seeded = [run[0] for run in runs]
    assert seeded[0] == seeded[1] == seeded[2]
    assert len(set(seeded[0])) > 1
    assert len({run[1] for run in runs}) == 3  # without a seed every request has its own
    assert sample(logits, sequence(0, seed=42), sequence(1, seed=43))[0] != sample(logits, sequence(0, seed=43))[0]


def test_the_engine_seed_moves_unseeded_requests_only():
    logits = torch.zeros(1, 10_000)
    assert sample(logits, sequence(), seed=1) != sample(logits, sequence(), seed=2)
    assert sample(logits, sequence(seed=5), seed=1) == sample(logits, sequence(seed=5), seed=2)


def test_draws_are_the_same_in_every_process():
    """Pinned numbers: they would change with the interpreter's hash seed, or with a careless edit."""
    assert request_key(0, None, 3) == -5525022569112028491
    assert request_key(0, 42, 3) == request_key(7, 42, 8) == -5300457895935351363
    assert draws([0.0] * 1000, n=6, seed=42) == [16, 342, 822, 636, 310, 657]


def published_splitmix64(state, count):
    """The generator as published: a state that moves on, in plain Python."""
    mask = (1 << 64) - 1
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def test_random_bits_are_splitmix64():
    for key in (1234567, -1, -(2**63), request_key(0, 42, 0)):
        ours = splitmix64(torch.tensor([key]), torch.arange(5))
        assert [bits % 2**64 for bits in ours.tolist()] == list(published_splitmix64(key % 2**64, 5))


def test_a_draw_races_the_numbers_of_its_own_key():
    """Request key, then draw number, then token id: half of an output of the published generator for each token."""
    for draw in range(3):
        *_, draw_key = published_splitmix64(request_key(0, 9, 0) % 2**64, draw + 1)
        outputs = list(published_splitmix64(draw_key, 512))
        halves = [
            outputs[t // 128 * 64 + t % 64] >> 32 if t % 128 >= 64 else outputs[t // 128 * 64 + t % 64] % 2**32
            for t in range(1000)
        ]
        times = [-math.log1p(-(half + 1) / 2**32) for half in halves]
        bits = token_bits(torch.tensor([draw_key - 2**64 * (draw_key >> 63)]), torch.arange(1000))
        assert bits.tolist() == halves
        assert exponential(bits).tolist() == pytest.approx(times, rel=1e-4)
        assert sample(torch.zeros(1, 1000), sequence(completion=draw, seed=9)) == [times.index(min(times))]


def test_streams_of_draws_and_of_requests_are_unrelated():
    """Neighbouring keys and draw numbers: no correlation, no repeated number, uniform bits."""
    keys = torch.tensor([request_key(0, seed, 0) for seed in range(8)] + list(range(8)))
    draw_keys = splitmix64(keys.unsqueeze(1), torch.arange(16)).flatten()
    bits = splitmix64(draw_keys.unsqueeze(1), torch.arange(1000))
    assert bits.unique().numel() == bits.numel()
    times = exponential(token_bits(draw_keys.unsqueeze(1), torch.arange(1000))).double()
    correlations = torch.corrcoef(times) - torch.eye(len(times))
    assert correlations.abs().max() < 6 / math.sqrt(1000)
    assert abs(correlations.mean().item()) < 1e-3
    for bit in range(64):
        assert abs(((bits >> bit) & 1).double().mean().item() - 0.5) < 4 * 0.5 / math.sqrt(bits.numel())


def test_the_smallest_and_the_largest_draw_are_finite_and_positive():  # B71
    smallest, largest = exponential(torch.tensor([0, 2**32 - 1])).tolist()
    assert smallest == pytest.approx(2.0**-32, rel=1e-3, abs=0)
    assert 16 < largest < math.inf


def test_a_million_draws_are_finite_and_positive():  # B71
    times = exponential(token_bits(torch.tensor([7]), torch.arange(10**6)))
    assert torch.isfinite(times).all()
    assert torch.isfinite(times.log()).all()
    assert abs(times.mean().item() - 1) < 0.01
    logits = torch.randn(1, 10**6, dtype=torch.bfloat16)
    assert 0 <= sample(logits, sequence())[0] < 10**6


def test_half_precision_logits_are_sampled_in_float32():
    torch.manual_seed(0)
    logits = torch.randn(3000, 200).mul(2).bfloat16()
    seqs = [sequence(i, temperature=2.0) for i in range(3000)]
    assert sample(logits, *seqs) == sample(logits.float(), *seqs)


def test_logits_are_not_changed():
    logits = torch.randn(2, 9)
    before = logits.clone()
    sample(logits, sequence(top_k=2, top_p=0.5), sequence(temperature=0))
    assert torch.equal(logits, before)
