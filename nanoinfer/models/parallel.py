"""The devices that share one model, as a layer sees them (tensor parallelism; Shoeybi et al., 2019).

Each rank holds an equal part of every large matrix. Two layers after each other need one sum over the ranks: the
first is cut by its outputs, the second by its inputs.

This file starts no process; `nanoinfer/parallel/` does.
"""

from __future__ import annotations

from torch import Tensor

from nanoinfer.models.config import Qwen3Config


class Ranks:
    """One of `size` devices, number `rank`; on its own machine it is GPU number `device_index`.

    This class is a single device with the whole model, which has nothing to exchange; `ProcessRanks` is one of several.
    """

    rank = 0
    size = 1
    device_index = 0

    def sum(self, x: Tensor) -> Tensor:
        """The sum of x over all ranks, on each of them; x may be overwritten."""
        return x

    def concat(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x of all ranks side by side along the last dimension, on each of them; in `out` where it is given."""
        return x if out is None else out.copy_(x)

    def least(self, number: int) -> int:
        """The smallest of the numbers that the ranks give."""
        return number


def check_divisible(config: Qwen3Config, size: int) -> None:
    """Raise ValueError unless every dimension that is cut is a multiple of `size`; lists the sizes that work."""
    cut = {
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
    }
    uneven = [f"{name} {value}" for name, value in cut.items() if value % size]
    if uneven:
        most = min(cut.values())
        valid = [n for n in range(1, most + 1) if not any(value % n for value in cut.values())]
        raise ValueError(
            f"tensor_parallel_size={size} does not divide {', '.join(uneven)} of this model; "
            f"it can be {', '.join(map(str, valid))}"
        )
