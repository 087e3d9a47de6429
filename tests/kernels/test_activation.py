"""silu(gate) * up against float64 and, to the bit in bfloat16, torch's roundings."""

import pytest
import torch
import torch.nn.functional as F
from kit.comparison import DEVICE, DTYPES, assert_close, random

from nanoinfer.kernels.activation import silu_mul


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 48, 1024, 1100])
def test_silu_mul(n, dtype):
    gate_up = random(3, 2 * n, dtype=dtype) * 3
    before = gate_up.clone()
    out = silu_mul(gate_up)
    gate, up = gate_up.double().chunk(2, dim=-1)
    assert out.dtype == dtype
    assert_close(out, gate * torch.sigmoid(gate) * up)
    assert torch.equal(gate_up, before)


def test_silu_is_rounded_before_the_product():
    gate_up = random(4, 2000, dtype=torch.bfloat16)
    gate, up = gate_up.chunk(2, dim=-1)
    expected = F.silu(gate) * up
    unrounded = (F.silu(gate.float()) * up.float()).bfloat16()
    out = silu_mul(gate_up)
    assert (unrounded != expected).float().mean() > 0.05
    assert (out != expected).float().mean() < 0.002


@pytest.mark.filterwarnings("ignore:overflow")  # exp of a large number is meant to be infinite
def test_large_gates_do_not_overflow():
    gate_up = torch.tensor([[-1e4, -100.0, 0.0, 100.0, 1e4] + [2.0] * 5], device=DEVICE)
    assert silu_mul(gate_up)[0].tolist() == pytest.approx([0, 0, 0, 200, 2e4])


def test_rows_of_a_wider_tensor():
    gate_up = random(3, 50)[:, 10:42]
    assert torch.equal(silu_mul(gate_up), silu_mul(gate_up.contiguous()))
