"""Assignment 7: find the bug.

You get the recording of a run under the default policy in which one thing went wrong, once. Say what, when, and for
whom: `Finding(kind, step, seq_id)`. The notebook says which kinds there are and the rule that each of them breaks.

A trace with a fault need not fold: then `trace.state(i)`, and with it `step.rows` and `trace.explain(i)`, raise
ValueError from the fault on. `trace.events` and `step.columns` can always be read: follow the events yourself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from nanoinfer import Trace
from nanoinfer.course.kits.a7_faults import Finding
from nanoinfer.trace.events import Event
from nanoinfer.trace.state import events_of_step


def diagnose(trace: Trace, suspects: Collection[str]) -> Finding | None:
    """The first fault in `trace` that is of one of the kinds in `suspects`; None if there is none.

    The sequence is the one that the rule was broken for:

    - over_budget: the first one whose row no longer fits into the budget
    - second_cut: the one that was cut and is not the first of its batch
    - skipped_head: the one that was admitted before the head
    - wrong_victim: the one that was preempted
    - lost_token: the one whose token is missing
    - early_block, stale_hash: the one that the block was taken for
    - leaked_block: the one that finished or was preempted
    - early_hash: the one whose block was registered
    - wrong_hit: the one that got the wrong block
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


# Helpers of your own go here.
