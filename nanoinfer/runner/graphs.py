"""CUDA graphs of the decode step: all its kernels, launched by one call.

A decode step launches about nine kernels a layer, each shorter than the host needs to launch it. A graph is captured
once for each batch size; a batch in between runs in the next larger one, filled up with padding rows that read and
write nothing and whose tokens are thrown away. Graphs read their inputs at fixed addresses (`in_flight.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import torch
from torch import Tensor

STRIDE = 16  # rows between two sizes: padding costs least where a step is long, and a graph costs memory


def graph_sizes(max_num_seqs: int) -> list[int]:
    """Batch sizes to capture, ascending; the last is at least max_num_seqs."""
    sizes = [1, 2, 4, 8]
    most = next((size for size in sizes if size >= max_num_seqs), 0) or -(-max_num_seqs // STRIDE) * STRIDE
    return [size for size in sizes if size < most] + list(range(STRIDE, most, STRIDE)) + [most]


class DecodeGraphs:
    """One graph for each size, all in one memory pool.

    Args:
        sizes: ascending.
        step: runs a decode step of that many rows on the input buffer, and returns logits [rows, vocab_size] that
            live at an address of their own.

    Attributes:
        logits: for each size the tensor that a replay fills.
    """

    def __init__(self, sizes: list[int], step: Callable[[int], Tensor]) -> None:
        self.sizes = sizes
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.logits: dict[int, Tensor] = {}
        pool = None
        for size in reversed(sizes):  # the largest first: the smaller ones fit into its memory
            step(size)  # compiles kernels and lets libraries choose, which a capture may not
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self.logits[size] = step(size)
            pool = pool or graph.pool()
            self.graphs[size] = graph

    def size_for(self, rows: int) -> int | None:
        """The smallest captured size that holds this many rows; None if there is none."""
        place = bisect_left(self.sizes, rows)
        return self.sizes[place] if place < len(self.sizes) else None

    def replay(self, size: int) -> Tensor:
        """Enqueue the graph; the logits that it will fill."""
        self.graphs[size].replay()
        return self.logits[size]
