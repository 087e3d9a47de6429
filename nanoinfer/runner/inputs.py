"""Turn the rows of a plan into the flat arrays that one forward pass reads.

Work per row is plain Python; work per token is vectorised. This file runs no model and changes no sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nanoinfer.core.overlap.in_flight import PENDING
from nanoinfer.core.plan import Row
from nanoinfer.runner.host_step import Arrays

Ints = npt.NDArray[np.int32]


def prefill_arrays(
    rows: Seq[Row], block_size: int, width: int = 0, sampled_in: Mapping[int, int] | None = None
) -> Arrays:
    """Chunks of any length. A row's queries are positions num_computed .. num_computed + num_scheduled - 1; keys
    are all positions before the end of the chunk (not of the sequence). A decode row is a chunk of one token.

    Args:
        rows: of the plan.
        block_size: token slots in one block.
        width: blocks in a row of `block_tables`; 0 for as many as the longest row has.
        sampled_in: for sequences whose last token is pending, their row in the step before.

    Returns:
        what the model reads, by the names in `host_step.array_shapes`.
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
    row_of_token = np.repeat(np.arange(len(rows)), query_lens)
    tables = pad_block_tables([row.block_table for row in rows], width)
    token_ids = list(chain.from_iterable(chunks))
    return flat_batch(token_ids, positions, row_of_token, query_starts, context_lens, tables, block_size)


def decode_arrays(
    rows: Seq[Row],
    block_size: int,
    width: int = 0,
    sampled_in: Mapping[int, int] | None = None,
    padded_rows: int = 0,
) -> Arrays:
    """The last token of each sequence, at position len - 1, looking at len tokens, itself included.

    The arguments are those of `prefill_arrays`, and `padded_rows`: the number of rows to fill up to, with rows that
    write nowhere and look at nothing.
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
    starts = np.arange(size + 1, dtype=np.int32)
    arrays = flat_batch(token_ids + padding, positions, starts[:-1], starts, context_lens, tables, block_size)
    arrays["slot_mapping"][count:] = -1
    return arrays


def flat_batch(
    token_ids: list[int],
    positions: Ints,
    row_of_token: npt.NDArray[np.integer],
    query_starts: Ints,
    context_lens: Ints,
    tables: Ints,
    block_size: int,
) -> Arrays:
    """The arrays by name, with those that follow from the others."""
    blocks = tables[row_of_token, positions // block_size]
    return {
        "token_ids": np.array(token_ids, np.int32),
        "positions": positions,
        "slot_mapping": blocks * block_size + positions % block_size,
        "last_indices": query_starts[1:] - 1,
        "query_starts": query_starts,
        "context_lens": context_lens,
        "block_tables": tables,
    }


def from_device(row: Row, sampled_in: Mapping[int, int] | None) -> int:
    """The code for the token that this sequence's row of the step before has sampled."""
    assert sampled_in is not None, "a pending token without a step in flight"
    return -1 - sampled_in[row.seq_id]


def pad_block_tables(tables: list[list[int]], width: int = 0, rows: int = 0) -> Ints:
    """Ragged tables as one array [rows, width], padded with 0; by default as small as holds them."""
    lengths = np.array([len(table) for table in tables] + [0] * (rows - len(tables)), np.int32)
    padded = np.zeros((len(lengths), width or int(lengths.max())), np.int32)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = list(chain.from_iterable(tables))
    return padded


def to_tensors(arrays: Arrays) -> dict[str, Tensor]:
    """The arrays as CPU tensors over the same memory; slots widened once, for torch indexes with int64."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return tensors | {"slot_mapping": tensors["slot_mapping"].long()}
