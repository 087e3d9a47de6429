"""Assignment 8: paged caches to attend to, and the right answer worked out slowly.

Importing this switches Triton's interpreter on where there is no GPU, so it must come before triton. Graded tests run
in the interpreter everywhere; a notebook uses the GPU.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nanoinfer.course.grading.failures import explained
from nanoinfer.kernels.interpreter import triton_interpreter

DEVICE = "cuda" if os.environ.get("TRITON_INTERPRET") != "1" and torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    triton_interpreter()

JUNK = 1e4  # in slots that no context uses
ARITHMETIC = {"mm", "bmm", "addmm", "baddbmm", "dot", "mul", "div", "sum", "exp", "exp2", "softmax", "_softmax"}


@dataclass
class Paged:
    """Queries, and caches whose blocks lie in any order.

    Attributes:
        query: [rows, heads, head_dim].
        key_cache, value_cache: [num_slots, kv_heads, head_dim]; slots that no context uses hold `JUNK`.
        block_tables: int32 [rows, max_blocks].
        context_lens: int32 [rows].
        block_size: slots of a block.
    """

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    block_tables: Tensor
    context_lens: Tensor
    block_size: int

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.query.shape[-1])

    @property
    def arguments(self) -> tuple[Any, ...]:
        """As `paged_attention` takes them."""
        tensors = (self.query, self.key_cache, self.value_cache, self.block_tables, self.context_lens)
        return (*tensors, self.block_size, self.scale)

    def slots(self, row: int) -> list[int]:
        """Physical slots of the tokens of a row."""
        table, size = self.block_tables[row].tolist(), self.block_size
        return [table[p // size] * size + p % size for p in range(int(self.context_lens[row]))]

    def answer(self) -> Tensor:
        """The right output, in float64: [rows, heads, head_dim]."""
        out = torch.zeros(self.query.shape, dtype=torch.float64)
        query, keys, values = (x.double().cpu() for x in (self.query, self.key_cache, self.value_cache))
        group = query.shape[1] // keys.shape[1]
        for row in range(query.shape[0]):
            slots = self.slots(row)
            for head in range(query.shape[1] if slots else 0):
                scores = keys[slots, head // group] @ query[row, head] * self.scale
                out[row, head] = torch.softmax(scores, dim=0) @ values[slots, head // group]
        return out


def paged(
    contexts: Sequence[int],
    heads: int = 2,
    kv_heads: int = 2,
    head_dim: int = 16,
    block_size: int = 4,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    junk: float = JUNK,
) -> Paged:
    """Random queries for rows with these contexts; blocks are handed out in random order."""
    rng = torch.Generator().manual_seed(seed)
    needs = [-(-context // block_size) for context in contexts]
    order = torch.randperm(sum(needs) + 2, generator=rng).tolist()
    tables = torch.zeros(len(contexts), max(*needs, 1, 1), dtype=torch.int32)
    for row, need in enumerate(needs):
        tables[row, :need] = torch.tensor([order.pop() for _ in range(need)], dtype=torch.int32)
    shape = ((sum(needs) + 2) * block_size, kv_heads, head_dim)
    caches = [torch.full(shape, junk, dtype=dtype) for _ in range(2)]
    query = torch.randn(len(contexts), heads, head_dim, generator=rng).to(dtype)
    lens = torch.tensor(list(contexts), dtype=torch.int32)
    case = Paged(query, caches[0], caches[1], tables, lens, block_size)
    used = [slot for row in range(len(contexts)) for slot in case.slots(row)]
    for cache in caches:
        cache[used] = torch.randn(len(used), kv_heads, head_dim, generator=rng).to(dtype)
    query, keys, values, tables, lens = (x.to(DEVICE) for x in (query, *caches, tables, lens))
    return Paged(query, keys, values, tables, lens, block_size)


def expect_attention(attention: Callable[..., Tensor], case: Paged, why: str, tolerance: float = 2e-5) -> None:
    """Raise AssertionError unless `attention` gives the right answer; the message shows the first row that is wrong."""
    expected = case.answer()
    got = attention(*case.arguments)
    assert isinstance(got, Tensor), f"expected a tensor, got {got!r}"
    assert got.shape == expected.shape, f"expected the shape {list(expected.shape)}, got {list(got.shape)}"
    assert got.dtype == case.query.dtype, f"expected {case.query.dtype}, as the query, got {got.dtype}"
    wrong = ~torch.isclose(got.double().cpu(), expected, rtol=tolerance, atol=tolerance)
    if not wrong.any():
        return
    row, head, column = (int(i) for i in wrong.nonzero()[0])
    message = (
        f"row {row}, head {head}, element {column}: expected {expected[row, head, column]:.5f}, "
        f"got {float(got[row, head, column]):.5f} ({int(wrong.sum())} of {wrong.numel()} are wrong)\n"
        f"context {int(case.context_lens[row])}, block size {case.block_size}, block table "
        f"{case.block_tables[row].tolist()}, so the tokens lie in slots {case.slots(row)[:20]}\nwhy: {why}"
    )
    raise AssertionError(explained(message, why))


class _NoArithmetic(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not type it
    """Within it, torch moves tensors but does not compute with them."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Importing torch's compiler to be skipped by it takes a second, in the process of each test."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in ARITHMETIC, f"torch computes ({name}); let the kernel do it"
        return func(*args, **(kwargs or {}))


def in_triton(attention: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`attention`, but torch may not do its arithmetic."""

    def call(*arguments: Any) -> Tensor:
        with _NoArithmetic():  # type: ignore[no-untyped-call]  # torch does not type it
            return attention(*arguments)

    return call
