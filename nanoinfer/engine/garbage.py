"""No full garbage collection while a batch runs.

A full collection looks at every object of the process, and a process with torch in it has hundreds of thousands: it
would stop the host for a tenth of a second, in which a GPU runs out of work. Young objects are still collected.

The thresholds belong to the process, so they hold for the user's other threads as well until the batch ends.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEVER = 1 << 30  # collections of the second generation that the third one waits for


@contextmanager
def no_full_collection() -> Iterator[None]:
    """Put full collections off until the block ends."""
    before = gc.get_threshold()
    gc.set_threshold(*before[:2], NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
