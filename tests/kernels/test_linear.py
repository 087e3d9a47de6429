"""One token's linear layer against float64."""

import pytest
import torch
from comparison import DEVICE, assert_close, random

from nanoinfer.kernels.linear import linear_one_row
from nanoinfer.kernels.ops import TritonOps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (64, 1024), (50, 1030), (12, 2500)], ids=str)
def test_linear_one_row(shape, dtype):
    weight, x = random(*shape, dtype=dtype), random(1, shape[1], dtype=dtype)
    assert_close(linear_one_row(x, weight), x.double() @ weight.double().T)


def test_nothing_beside_the_matrix_is_read():
    wide = torch.full((20, 40), torch.nan, device=DEVICE)
    wide[4:10] = random(6, 40)
    x = random(1, 40)
    assert_close(linear_one_row(x, wide[4:10]), x.double() @ wide[4:10].double().T)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_op_takes_any_number_of_rows_and_a_bias(rows, with_bias):
    weight, x = random(24, 16), random(rows, 16)
    bias = random(24) if with_bias else None
    truth = x.double() @ weight.double().T
    assert_close(TritonOps().linear(x, weight, bias), truth + bias.double() if with_bias else truth)
