"""The building blocks of a decoder: linear, embedding, RMSNorm, rotary position embedding.

Parameters are created uninitialised, in their final dtype and on their final device; the loader fills them. A
parameter that is cut over several devices says along which dimension, in `shard_dim`.
This file knows nothing of batches, caches or checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanoinfer.models.ops import Ops, PartialSums
from nanoinfer.models.parallel import Ranks


class Placement(TypedDict):
    """Where parameters live, passed along as keyword arguments: no default dtype or device is ever switched."""

    dtype: torch.dtype
    device: torch.device


class Parameter(nn.Parameter):
    """A parameter for the loader to fill. `shard_dim` is the dimension that ranks divide; None is whole on each."""

    shard_dim: int | None = None


def uninitialised(*shape: int, place: Placement, shard_dim: int | None = None) -> Parameter:
    """A parameter of this rank's own shape; inference needs no gradients."""
    parameter = Parameter(torch.empty(*shape, **place), requires_grad=False)
    parameter.shard_dim = shard_dim
    return parameter


class ColumnLinear(nn.Module):
    """y = x W^T + b, with W of shape [out_features, in_features] cut by outputs: each rank gives its part of y."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool, place: Placement, ranks: Ranks, ops: Ops
    ) -> None:
        super().__init__()
        rows = out_features // ranks.size
        self.weight = uninitialised(rows, in_features, place=place, shard_dim=0)
        self.bias = uninitialised(rows, place=place, shard_dim=0) if bias else None
        self.ops = ops

    def forward(self, x: Tensor, decoding: bool) -> Tensor:
        return self.ops.linear(x, self.weight, self.bias, decoding)


class RowLinear(nn.Module):
    """y = x W^T + b, with W cut by inputs: each rank has a part of x, and the products are summed over the ranks."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool, place: Placement, ranks: Ranks, ops: Ops
    ) -> None:
        super().__init__()
        self.weight = uninitialised(out_features, in_features // ranks.size, place=place, shard_dim=1)
        self.bias = uninitialised(out_features, place=place) if bias else None
        self.ranks = ranks
        self.ops = ops

    def forward(self, x: Tensor, decoding: bool) -> Tensor | PartialSums:
        """What `RMSNorm.add` reads."""
        if self.ranks.size == 1:
            return self.ops.split_linear(x, self.weight, self.bias, decoding)
        y = self.ranks.sum(self.ops.linear(x, self.weight, None, decoding))
        return y if self.bias is None else y + self.bias  # once, not once on each rank


class MergedLinear:
    """Linears that read the same input, run as one matmul.

    Their weights move into one matrix, and each linear keeps its own parameter as a view of its rows: filling
    `q_proj.weight` fills the matrix, so the checkpoint's names stay and nothing is held twice.
    """

    def __init__(self, *linears: ColumnLinear) -> None:
        self.weight = merge([linear.weight for linear in linears])
        biases = [linear.bias for linear in linears if linear.bias is not None]
        self.bias = merge(biases) if biases else None
        self.ops = linears[0].ops

    def __call__(self, x: Tensor, decoding: bool) -> Tensor:
        """The outputs [num_tokens, sum of out_features] side by side, in the order of the linears."""
        return self.ops.linear(x, self.weight, self.bias, decoding)


def merge(parameters: Sequence[nn.Parameter]) -> Tensor:
    """One tensor that holds the parameters one after the other; they become views of it."""
    merged = torch.cat(tuple(parameters))
    sizes = [parameter.shape[0] for parameter in parameters]
    for parameter, rows in zip(parameters, torch.split_with_sizes(merged, sizes), strict=True):
        parameter.data = rows
    return merged


class Embedding(nn.Module):
    """A table of one row for each token id, cut by ids: a rank gives zeros for those it does not hold."""

    def __init__(self, num_embeddings: int, dim: int, place: Placement, ranks: Ranks) -> None:
        super().__init__()
        self.weight = uninitialised(num_embeddings // ranks.size, dim, place=place, shard_dim=0)
        self.ranks = ranks

    def forward(self, ids: Tensor) -> Tensor:
        if self.ranks.size == 1:
            return F.embedding(ids, self.weight)
        rows = self.weight.shape[0]
        local = ids - self.ranks.rank * rows
        elsewhere = (local < 0) | (local >= rows)
        found = F.embedding(local.masked_fill(elsewhere, 0), self.weight)
        return self.ranks.sum(found.masked_fill_(elsewhere.unsqueeze(1), 0))


class RMSNorm(nn.Module):
    """Root-mean-square normalisation over the last dimension (Zhang and Sennrich, 2019)."""

    def __init__(self, dim: int, eps: float, place: Placement, ops: Ops) -> None:
        super().__init__()
        self.weight = uninitialised(dim, place=place)
        self.eps = eps
        self.ops = ops

    def forward(self, x: Tensor) -> Tensor:
        return self.ops.rms_norm(x, self.weight, self.eps)

    def add(self, x: Tensor | PartialSums, residual: Tensor) -> Tensor:
        """Add x to `residual` in place and return the normalised sum: what each half of a layer begins with."""
        return self.ops.add_rms_norm(x, residual, self.weight, self.eps)


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
