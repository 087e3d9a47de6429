"""What the settings device, dtype and attention_backend mean on this machine."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nanoinfer.kernels.interpreter import repair_interpreter
from nanoinfer.models.config import Qwen3Config
from nanoinfer.models.ops import Ops
from nanoinfer.runner import sampler
from nanoinfer.runner.attention import interpreted

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def resolve_device(name: str, index: int = 0) -> torch.device:
    """The device of that name, GPU number `index`; "auto" is CUDA where there is some. Raises ValueError for one that
    is not there."""
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be one of auto, cpu, cuda, got {name!r}")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ValueError("device='cuda', but torch finds no CUDA device here; use device='cpu' or 'auto'")
    if not available or name == "cpu":
        return torch.device("cpu")
    if index >= torch.cuda.device_count():
        raise ValueError(f"this rank needs {index + 1} GPUs on its machine, torch finds {torch.cuda.device_count()}")
    return torch.device("cuda", index)


def resolve_dtype(name: str, device: torch.device, model: Qwen3Config) -> torch.dtype:
    """The dtype of that name; "auto" is float32 on the CPU and the checkpoint's own on a GPU."""
    chosen = name if name != "auto" else "float32" if device.type == "cpu" else model.dtype
    if chosen not in DTYPES:
        raise ValueError(f"dtype must be one of auto, {', '.join(DTYPES)}; the checkpoint's own is {chosen!r}")
    return DTYPES[chosen]


def make_kernels(device: torch.device, backend: str) -> tuple[Ops, Callable[..., Tensor]]:
    """The operations between matrix products and attention, and `sampler.sample`: fused kernels where Triton runs,
    plain PyTorch elsewhere and beside the plain backend."""
    if backend == "torch" or not (device.type == "cuda" or interpreted(backend)):
        return Ops(), sampler.sample
    if interpreted(backend):
        repair_interpreter()
    from nanoinfer.kernels.ops import TritonOps
    from nanoinfer.kernels.sampling import sample

    return TritonOps(), sample
