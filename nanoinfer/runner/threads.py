"""How many CPU threads a step uses.

A matrix product of some microseconds gains nothing from a second thread, and on a busy machine it loses a
thousandfold: the threads of a parallel region wait for the one the system has put to sleep.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block on one thread; the process's own number of threads is back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
