"""What the kernel tests share: the device, and how far an output is from the truth."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.bfloat16]
# Relative errors ||out - truth|| / ||truth||: a few roundings of the dtype, which bfloat16 does at 2^-9 each.
BOUND = {torch.float32: 2e-6, torch.bfloat16: 5e-3}


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(DEVICE, dtype)


def assert_close(out, truth, bound=None):
    """`truth` is float64; the bound is that of out's dtype unless given."""
    assert out.shape == truth.shape
    error = torch.linalg.vector_norm(out.double() - truth) / torch.linalg.vector_norm(truth)
    assert error <= (BOUND[out.dtype] if bound is None else bound), f"relative error {error:.2e}"
