"""Linear layers of one token and of a few against float64."""

import pytest
import torch
import torch.nn.functional as F
from kit.comparison import BOUND, DEVICE, assert_close, random

from nanoinfer.kernels import linear
from nanoinfer.kernels.linear import has_shared_memory, linear_few_rows, linear_one_row, parts_of
from nanoinfer.kernels.norm import MAX_PARTS, add_rms_norm
from nanoinfer.kernels.ops import TritonOps
from nanoinfer.models.ops import PartialSums

OPS = TritonOps()
few_rows = pytest.mark.skipif(not has_shared_memory(torch.device(DEVICE)), reason="too little shared memory")


@pytest.fixture(autouse=True)
def outputs_begin_as_nan(monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(linear.torch, "empty", lambda *args, **options: empty(*args, **options).fill_(torch.nan))


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


@few_rows
@pytest.mark.parametrize("rows", [1, 2, 7, 32, 33, 64])
@pytest.mark.parametrize("shape", [(1, 8), (7, 40), (64, 1024), (100, 1032), (130, 2048), (65, 3072)], ids=str)
def test_linear_few_rows(shape, rows):
    weight, x = random(*shape, dtype=torch.bfloat16), random(rows, shape[1], dtype=torch.bfloat16)
    out = linear_few_rows(x, weight)
    parts = -(-shape[1] // (1024 if rows <= 32 else 512))
    assert parts == parts_of(x, weight)
    assert out.dtype == (torch.bfloat16 if parts == 1 else torch.float32)
    if parts > 1:
        assert out.shape == (parts, rows, shape[0])
        out = out.sum(dim=0)
    assert_close(out, x.double() @ weight.double().T, BOUND[torch.bfloat16])
    assert parts == 1 or torch.equal(out, linear_few_rows(x, weight).sum(dim=0))


@few_rows
def test_rows_of_wider_tensors_are_read_alone():
    wide, wide_x = (torch.full((80, 1104), torch.nan, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    wide[5:75, 8:1048] = random(70, 1040)
    wide_x[3:9, 16:1056] = random(6, 1040)
    weight, x = wide[5:75, 8:1048], wide_x[3:9, 16:1056]
    assert_close(linear_few_rows(x, weight).sum(dim=0), x.double() @ weight.double().T, BOUND[torch.bfloat16])


@few_rows
def test_a_row_does_not_depend_on_the_others():
    weight, x = random(96, 1024, dtype=torch.bfloat16), random(32, 1024, dtype=torch.bfloat16)
    together = linear_few_rows(x, weight)
    for rows in (2, 5, 16, 31):
        assert torch.equal(linear_few_rows(x[:rows], weight), together[:rows])


@few_rows
@pytest.mark.parametrize(
    ("rows", "out_features", "in_features", "dtype", "parts"),
    [
        (2, 4096, 1024, torch.bfloat16, 1),  # Qwen3-0.6B
        (64, 4096, 1024, torch.bfloat16, 2),
        (32, 1024, 3072, torch.bfloat16, 3),
        (64, 1024, 3072, torch.bfloat16, 6),
        (2, 151936, 1024, torch.bfloat16, 0),  # more programs than run at once
        (2, 4096, 4096, torch.bfloat16, 0),  # Qwen3-8B
        (2, 64, 7168, torch.bfloat16, 0),  # more parts than are added up
        (65, 64, 1024, torch.bfloat16, 0),
        (2, 64, 1020, torch.bfloat16, 0),
        (2, 64, 1024, torch.float32, 0),
    ],
)
def test_where_it_is_used_and_in_how_many_parts(rows, out_features, in_features, dtype, parts):
    x, weight = torch.empty(rows, in_features, dtype=dtype, device=DEVICE), torch.empty(1, in_features, dtype=dtype)
    assert parts_of(x, weight.expand(out_features, in_features)) == parts


@few_rows
@pytest.mark.parametrize(("rows", "in_features"), [(3, 2048), (40, 1000), (64, 512 * MAX_PARTS)])
def test_parts_are_added_up_by_the_norm_that_reads_them(rows, in_features):
    weight, x = random(48, in_features, dtype=torch.bfloat16), random(rows, in_features, dtype=torch.bfloat16)
    residual, norm = random(rows, 48, dtype=torch.bfloat16), random(48, dtype=torch.bfloat16)
    sums = OPS.split_linear(x, weight, None, decoding=True)
    assert isinstance(sums, PartialSums)
    total = (residual.double() + x.double() @ weight.double().T).to(torch.bfloat16)
    normalised = add_rms_norm(sums, residual, norm, 1e-6)
    assert normalised.dtype == torch.bfloat16
    assert_close(residual, total.double())
    total = residual.double()
    scale = (total.square().mean(dim=1, keepdim=True) + 1e-6).rsqrt()
    assert_close(normalised, total * scale * norm.double())


@few_rows
@pytest.mark.parametrize(
    ("in_features", "linear", "split"),
    [(1024, OPS.split_linear, False), (2048, OPS.split_linear, True), (2048, OPS.linear, False)],
)
def test_the_op_gives_partial_sums_only_where_they_are_allowed(in_features, linear, split):
    weight, x = random(24, in_features, dtype=torch.bfloat16), random(5, in_features, dtype=torch.bfloat16)
    out = linear(x, weight, None, decoding=True)
    assert isinstance(out, PartialSums) == split
    out = out.parts.sum(dim=0) if split else out
    assert_close(out, x.double() @ weight.double().T, BOUND[torch.bfloat16])
    assert torch.equal(linear(x, weight, None, decoding=False), F.linear(x, weight))


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("decoding", [True, False])
@pytest.mark.parametrize("linear", [OPS.linear, OPS.split_linear])
def test_the_op_takes_any_number_of_rows_and_a_bias(linear, decoding, rows, with_bias):
    weight, x = random(24, 16), random(rows, 16)
    bias = random(24) if with_bias else None
    truth = x.double() @ weight.double().T
    assert_close(linear(x, weight, bias, decoding), truth + bias.double() if with_bias else truth)
