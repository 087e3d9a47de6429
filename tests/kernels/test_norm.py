"""RMSNorm kernels against the formula in float64 and against torch."""

import pytest
import torch
import torch.nn.functional as F
from kit.comparison import DEVICE, DTYPES, assert_close, random

from nanoinfer.kernels.norm import add_rms_norm, rms_norm

EPS = 1e-6


def truth(x, weight):
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [1, 16, 96, 1000, 1024])
def test_rms_norm(hidden, dtype):
    x, weight = random(3, hidden, dtype=dtype), random(hidden, dtype=dtype)
    before = x.clone()
    out = rms_norm(x, weight, EPS)
    assert out.dtype == dtype
    assert_close(out, truth(x, weight))
    assert_close(out, F.rms_norm(x, (hidden,), weight, EPS).double(), bound={4: 1e-6, 2: 1e-3}[dtype.itemsize])
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [16, 96, 1024])
def test_add_rms_norm_normalises_the_rounded_sum(hidden, dtype):
    x, residual, weight = random(3, hidden, dtype=dtype), random(3, hidden, dtype=dtype), random(hidden, dtype=dtype)
    before, total = x.clone(), x + residual
    out = add_rms_norm(x, residual, weight, EPS)
    assert torch.equal(residual, total)
    assert torch.equal(x, before)
    assert_close(out, truth(total, weight))
    assert torch.equal(out, rms_norm(total, weight, EPS))


def test_rows_of_a_wider_tensor():
    wide, wide_residual, weight = random(4, 100), random(4, 70), random(48)
    untouched = wide_residual.clone()
    x, residual = wide[:, 20:68], wide_residual[:, 8:56]
    assert_close(rms_norm(x, weight, EPS), truth(x, weight))
    total = x + residual
    assert_close(add_rms_norm(x, residual, weight, EPS), truth(total, weight))
    untouched[:, 8:56] = total
    assert torch.equal(wide_residual, untouched)  # nothing beside the rows was written


def test_a_row_of_zeros_stays_zero_and_small_values_are_not_lost():
    x = torch.zeros(2, 32, device=DEVICE)
    x[1] = 1e-18
    out = rms_norm(x, torch.ones(32, device=DEVICE), EPS)
    assert torch.equal(out[0], x[0])
    assert torch.allclose(out[1], x[1] * 1000, atol=0)


def test_float32_inside():
    """300 squared overflows nothing and 2^-9 of a sum of 1024 squares is not lost."""
    x = torch.full((1, 1024), 300.0, dtype=torch.bfloat16, device=DEVICE)
    assert torch.equal(rms_norm(x, torch.ones_like(x[0]), EPS), torch.ones_like(x))


def test_no_rows():
    assert rms_norm(random(0, 16), random(16), EPS).shape == (0, 16)
