"""The building blocks of a decoder: linear, embedding, RMSNorm, rotary position embedding.

Parameters are created uninitialised, in their final dtype and on their final device; the loader fills them.
This file knows nothing of batches, caches or checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Placement(TypedDict):
    """Where parameters live, passed along as keyword arguments: no default dtype or device is ever switched."""

    dtype: torch.dtype
    device: torch.device


def uninitialised(*shape: int, **place: torch.dtype | torch.device) -> nn.Parameter:
    """A parameter for the loader to fill; inference needs no gradients."""
    return nn.Parameter(torch.empty(*shape, **place), requires_grad=False)  # type: ignore[call-overload]


class Linear(nn.Module):
    """y = x W^T + b, with W of shape [out_features, in_features]."""

    def __init__(self, in_features: int, out_features: int, bias: bool, place: Placement) -> None:
        super().__init__()
        self.weight = uninitialised(out_features, in_features, **place)
        self.bias = uninitialised(out_features, **place) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class MergedLinear:
    """Linears that read the same input, run as one matmul.

    Their weights move into one matrix, and each linear keeps its own parameter as a view of its rows: filling
    `q_proj.weight` fills the matrix, so the checkpoint's names stay and nothing is held twice.
    """

    def __init__(self, *linears: Linear) -> None:
        self.sizes = [linear.weight.shape[0] for linear in linears]
        self.weight = merge([linear.weight for linear in linears])
        biases = [linear.bias for linear in linears if linear.bias is not None]
        self.bias = merge(biases) if biases else None

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """One output [num_tokens, out_features] for each linear."""
        return torch.split_with_sizes(F.linear(x, self.weight, self.bias), self.sizes, dim=-1)


def merge(parameters: Sequence[nn.Parameter]) -> Tensor:
    """One tensor that holds the parameters one after the other; they become views of it."""
    merged = torch.cat(tuple(parameters))
    sizes = [parameter.shape[0] for parameter in parameters]
    for parameter, rows in zip(parameters, torch.split_with_sizes(merged, sizes), strict=True):
        parameter.data = rows
    return merged


class Embedding(nn.Module):
    """A table of one row for each token id."""

    def __init__(self, num_embeddings: int, dim: int, place: Placement) -> None:
        super().__init__()
        self.weight = uninitialised(num_embeddings, dim, **place)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation over the last dimension (Zhang and Sennrich, 2019).

    torch computes it in float32 whatever the dtype of x.
    """

    def __init__(self, dim: int, eps: float, place: Placement) -> None:
        super().__init__()
        self.weight = uninitialised(dim, **place)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class RotaryEmbedding:
    """Rotary position embedding (Su et al., 2021), in the half-split layout the Qwen checkpoints use.

    Args:
        head_dim: channels of one head; channel i turns together with channel i + head_dim / 2.
        max_positions: rows of the table.
        theta: base of the geometric series of frequencies.
        device: where the table lies. It is always float32.
    """

    def __init__(self, head_dim: int, max_positions: int, theta: float, device: torch.device) -> None:
        channels = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device)
        frequencies = 1.0 / theta ** (channels / head_dim)
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32, device=device), frequencies)
        self.cos = angles.cos().repeat(1, 2)
        self.sin = torch.cat((-angles.sin(), angles.sin()), dim=-1)  # the sign of the swapped half is in the table

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin for each token, each [num_tokens, 1, head_dim], to broadcast over heads."""
        return self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each channel pair of x [num_tokens, heads, head_dim] by its token's angle, in float32 inside."""
    first, second = x.chunk(2, dim=-1)
    swapped = torch.cat((second, first), dim=-1)  # cos and sin are float32, so all products are
    return torch.addcmul(x * cos, swapped, sin).to(x.dtype)
