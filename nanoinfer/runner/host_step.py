"""A step as plain arrays: all that a device needs to know of it, and all that crosses to other ranks.

This file knows neither sequences nor the model: `ModelRunner` makes host steps of plans, and computes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nanoinfer.runner.sampler import Filters


@dataclass(frozen=True, slots=True)
class HostStep:
    """One step to compute.

    Attributes:
        places: for each row of the plan its row here: on a GPU the longest contexts come first.
        arrays: the fields of StepArrays and those of `sampling_arrays`, by name.
        graph_size: rows of the CUDA graph to replay, which the arrays are padded to; None to run eagerly.
        filters: the rows to sample again, from a part of the vocabulary.
    """

    places: list[int]
    arrays: dict[str, npt.NDArray[Any]]
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
    """Dtype and largest shape of every array of a step of at most so many tokens and rows, tables last."""
    row = (max_rows,)
    return {
        "keys": (np.int64, row),
        "draws": (np.int64, row),
        "temperatures": (np.float32, row),
        "last_indices": (np.int32, row),
        "query_starts": (np.int32, (max_rows + 1,)),
        "context_lens": (np.int32, row),
        "token_ids": (np.int32, (max_tokens,)),
        "positions": (np.int32, (max_tokens,)),
        "slot_mapping": (np.int32, (max_tokens,)),
        "block_tables": (np.int32, (max_rows, width)),
    }
