"""Turn the rows of a plan into the flat tensors that one forward pass reads.

Work per row is plain Python; work per token is vectorised. This file runs no model and changes no sequence.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate, chain

import torch
from torch import Tensor

from nanoinfer.core.plan import Row
from nanoinfer.runner.attention import AttentionBatch


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One forward pass.

    Attributes:
        token_ids: [num_tokens], the scheduled tokens of all rows, in row order.
        positions: [num_tokens], each token's place in its sequence, from 0.
        last_indices: [rows], where in the flat batch each row's last token is: only it is sampled from.
        attention: the batch as attention sees it.
    """

    token_ids: Tensor
    positions: Tensor
    last_indices: Tensor
    attention: AttentionBatch


def prefill_inputs(rows: Seq[Row], block_size: int, device: torch.device) -> StepInputs:
    """Chunks of any length. A row's queries are positions num_computed .. num_computed + num_scheduled - 1; keys
    are all positions before the end of the chunk (not of the sequence). A decode row is a chunk of one token."""
    ends = [row.num_computed + row.num_scheduled for row in rows]
    chunks = [row.seq.token_ids[row.num_computed : end] for row, end in zip(rows, ends, strict=True)]
    return build_inputs(rows, chunks, ends, block_size, device)


def decode_inputs(rows: Seq[Row], block_size: int, device: torch.device) -> StepInputs:
    """The last token of each sequence, at position len - 1, looking at len tokens, itself included."""
    chunks = [[row.seq.last_token] for row in rows]
    return build_inputs(rows, chunks, [len(row.seq) for row in rows], block_size, device)


def build_inputs(
    rows: Seq[Row], chunks: list[list[int]], ends: list[int], block_size: int, device: torch.device
) -> StepInputs:
    """The flat batch of `chunks`, the tokens each row computes; row i's are the last before position ends[i]."""
    query_lens = [len(chunk) for chunk in chunks]
    query_ends = list(accumulate(query_lens))
    lens = torch.tensor(query_lens)
    # arange counts through the flat batch; shifting each row by a constant makes it count from the row's start.
    shift = torch.tensor([end - query_end for end, query_end in zip(ends, query_ends, strict=True)])
    positions = torch.arange(query_ends[-1]) + shift.repeat_interleave(lens)
    tables = pad_block_tables([row.block_table for row in rows])
    blocks = tables[torch.arange(len(rows)).repeat_interleave(lens), positions // block_size]
    return StepInputs(
        token_ids=torch.tensor(list(chain.from_iterable(chunks))).to(device),
        positions=positions.to(device),
        last_indices=torch.tensor(query_ends).sub_(1).to(device),
        attention=AttentionBatch(
            query_lens=query_lens,
            context_lens=ends,
            block_tables=tables.to(device),
            slot_mapping=(blocks * block_size + positions % block_size).to(device),
            block_size=block_size,
        ),
    )


def pad_block_tables(tables: list[list[int]]) -> Tensor:
    """Ragged tables as one int64 tensor [rows, most blocks], padded with 0."""
    width = max(len(table) for table in tables)
    return torch.tensor([table + [0] * (width - len(table)) for table in tables])
