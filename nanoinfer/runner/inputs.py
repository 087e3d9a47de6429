"""Turn the rows of a plan into the flat arrays that one forward pass reads.

Work per row is plain Python; work per token is vectorised. This file runs no model and changes no sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nanoinfer.core.overlap.in_flight import PENDING
from nanoinfer.core.plan import Row
from nanoinfer.runner.attention import AttentionBatch

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class StepArrays:
    """One forward pass, on the host. All int32.

    Attributes:
        token_ids: [num_tokens], the scheduled tokens of all rows, in row order. A negative one, -1 - i, stands for
            the token that row i of the step before has sampled: it is known to the device alone.
        positions: [num_tokens], each token's place in its sequence, from 0.
        slot_mapping: [num_tokens], the cache slot each token is written to; negative for padding.
        last_indices: [rows], where in the flat batch each row's last token is: only it is sampled from.
        query_starts: [rows + 1], where in the flat batch each row begins, and the end of the last.
        context_lens: [rows], tokens a row looks at, itself included; 0 for padding.
        block_tables: [rows, width], padded with 0.
    """

    token_ids: Ints
    positions: Ints
    slot_mapping: Ints
    last_indices: Ints
    query_starts: Ints
    context_lens: Ints
    block_tables: Ints

    def as_dict(self) -> dict[str, Ints]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The same on the device, and the batch as attention sees it."""

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    last_indices: Tensor
    attention: AttentionBatch

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], query_lens: list[int], context_lens: list[int], block_size: int) -> Self:
        """From one tensor for each field of StepArrays."""
        return cls(
            token_ids=tensors["token_ids"],
            positions=tensors["positions"],
            slot_mapping=tensors["slot_mapping"],
            last_indices=tensors["last_indices"],
            attention=AttentionBatch(
                query_lens=query_lens,
                context_lens=context_lens,
                query_starts=tensors["query_starts"],
                context_lengths=tensors["context_lens"],
                block_tables=tensors["block_tables"],
                block_size=block_size,
            ),
        )


def prefill_arrays(
    rows: Seq[Row], block_size: int, width: int = 0, sampled_in: Mapping[int, int] | None = None
) -> StepArrays:
    """Chunks of any length. A row's queries are positions num_computed .. num_computed + num_scheduled - 1; keys
    are all positions before the end of the chunk (not of the sequence). A decode row is a chunk of one token.

    Args:
        rows: of the plan.
        block_size: token slots in one block.
        width: blocks in a row of `block_tables`; 0 for as many as the longest row has.
        sampled_in: for sequences whose last token is pending, their row in the step before.
    """
    query_lens = np.array([row.num_scheduled for row in rows], np.int32)
    context_lens = np.array([row.num_computed for row in rows], np.int32) + query_lens
    query_starts = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(query_lens, out=query_starts[1:])
    chunks = [row.seq.token_ids[row.num_computed : row.num_computed + row.num_scheduled] for row in rows]
    for chunk, row in zip(chunks, rows, strict=True):
        if chunk[-1] == PENDING:
            chunk[-1] = from_device(row, sampled_in)
    # arange counts through the flat batch; shifting each row by a constant makes it count from the row's start.
    shift = np.repeat(context_lens - query_starts[1:], query_lens)
    positions = np.arange(query_starts[-1], dtype=np.int32) + shift
    tables = pad_block_tables([row.block_table for row in rows], width)
    blocks = tables[np.repeat(np.arange(len(rows)), query_lens), positions // block_size]
    return StepArrays(
        token_ids=np.array(list(chain.from_iterable(chunks)), np.int32),
        positions=positions,
        slot_mapping=blocks * block_size + positions % block_size,
        last_indices=query_starts[1:] - 1,
        query_starts=query_starts,
        context_lens=context_lens,
        block_tables=tables,
    )


def decode_arrays(
    rows: Seq[Row],
    block_size: int,
    width: int = 0,
    sampled_in: Mapping[int, int] | None = None,
    padded_rows: int = 0,
) -> StepArrays:
    """The last token of each sequence, at position len - 1, looking at len tokens, itself included.

    Args:
        rows: of the plan.
        block_size: see `prefill_arrays`, and so are `width` and `sampled_in`.
        width: see `prefill_arrays`.
        sampled_in: see `prefill_arrays`.
        padded_rows: how many rows to make it with rows that write nowhere and look at nothing.
    """
    count, size = len(rows), max(len(rows), padded_rows)
    token_ids = [row.seq.token_ids[-1] for row in rows]
    if PENDING in token_ids:
        token_ids = [
            from_device(row, sampled_in) if token == PENDING else token
            for token, row in zip(token_ids, rows, strict=True)
        ]
    padding = [0] * (size - count)
    context_lens = np.array([len(row.seq.token_ids) for row in rows] + padding, np.int32)
    positions = np.maximum(context_lens - 1, 0)
    tables = pad_block_tables([row.block_table for row in rows], width, size)
    slot_mapping = tables[np.arange(size), positions // block_size] * block_size + positions % block_size
    slot_mapping[count:] = -1
    return StepArrays(
        token_ids=np.array(token_ids + padding, np.int32),
        positions=positions,
        slot_mapping=slot_mapping,
        last_indices=np.arange(size, dtype=np.int32),
        query_starts=np.arange(size + 1, dtype=np.int32),
        context_lens=context_lens,
        block_tables=tables,
    )


def from_device(row: Row, sampled_in: Mapping[int, int] | None) -> int:
    """The code for "what this sequence's row of the step before has sampled"."""
    assert sampled_in is not None, "a pending token without a step in flight"
    return -1 - sampled_in[row.seq_id]


def pad_block_tables(tables: list[list[int]], width: int = 0, rows: int = 0) -> Ints:
    """Ragged tables as one array [rows, width], padded with 0; by default as small as holds them."""
    lengths = np.array([len(table) for table in tables] + [0] * (rows - len(tables)), np.int32)
    padded = np.zeros((len(lengths), width or int(lengths.max())), np.int32)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = list(chain.from_iterable(tables))
    return padded


def to_tensors(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Tensor]:
    """The arrays as CPU tensors over the same memory; slots widened once, for torch indexes with int64."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return tensors | {"slot_mapping": tensors["slot_mapping"].long()}
