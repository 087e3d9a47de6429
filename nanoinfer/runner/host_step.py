"""A step as plain arrays: all that a device needs to know about it, and all that crosses to other ranks.

This file knows neither sequences nor the model: `ModelRunner` makes host steps from plans, `LoadedModel` computes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Filters:
    """The rows of a step that draw from a part of the vocabulary, with their top_k (0: all) and top_p (1: all)."""

    rows: list[int]
    top_k: list[int]
    top_p: list[float]


@dataclass(frozen=True, slots=True)
class HostStep:
    """One step to compute.

    Attributes:
        places: for each row of the plan its row here: on a GPU the longest contexts come first.
        arrays: what `array_shapes` lists, by name.
        graph_size: rows of the CUDA graph to replay, which the arrays are padded to; None to run eagerly.
        filters: the rows to sample again, from a part of the vocabulary.
    """

    places: list[int]
    arrays: Arrays
    graph_size: int | None
    filters: Filters | None

    @property
    def num_rows(self) -> int:
        """Rows of the plan, without padding."""
        return len(self.places)

    @property
    def query_lens(self) -> list[int]:
        """Tokens each row computes."""
        lens: list[int] = np.diff(self.arrays["query_starts"]).tolist()
        return lens

    @property
    def context_lens(self) -> list[int]:
        """Tokens each row looks at."""
        lens: list[int] = self.arrays["context_lens"].tolist()
        return lens


def array_shapes(max_tokens: int, max_rows: int, width: int) -> dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]:
    """Every array of a step with its dtype and largest shape, for at most so many tokens and rows. Tables come last:
    their size varies most."""
    tokens, rows = (max_tokens,), (max_rows,)
    return {
        "keys": (np.int64, rows),  # of the rows' requests, for their random numbers
        "draws": (np.int64, rows),  # number of each row's draw in its request, from 0
        "temperatures": (np.float32, rows),  # 0 is greedy
        "last_indices": (np.int32, rows),  # each row's last token in the flat batch: the only one to sample from
        "query_starts": (np.int32, (max_rows + 1,)),  # each row's first token in the flat batch, and the batch's end
        "context_lens": (np.int32, rows),  # tokens a row looks at, its own included; 0 for padding
        "token_ids": (np.int32, tokens),  # the rows' tokens, in row order; -1 - i is what row i sampled a step before
        "positions": (np.int32, tokens),  # each token's place in its sequence, from 0
        "slot_mapping": (np.int32, tokens),  # the cache slot each token is written to; negative for padding
        "block_tables": (np.int32, (max_rows, width)),  # padded with 0
    }
