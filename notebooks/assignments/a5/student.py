"""Assignment 5: a fairer policy.

`prefill_first` lets nobody decode while anybody who waits can be prefilled. Write a policy that does the same, but sets
a bound: while somebody is ready to decode, at most `patience` steps in a row pass without a decode step.

A policy is a function from a scheduler to the plan of its next step. Read `nanoinfer/core/policies/prefill_first.py`
first: it is 75 lines. Act only through the scheduler's moves (`schedule_prefill`, `schedule_decode`, `start_running`,
`make_room`, `no_blocks`) and the block manager (`can_allocate`, `allocate`, `deallocate`).
"""

from __future__ import annotations

from nanoinfer import Scheduler
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.reasons import Preemption, Stop, StopReason


def fair(scheduler: Scheduler, patience: int) -> StepPlan:
    """The plan of the next step: a prefill batch or a decode batch, never both in one.

    It plans as `prefill_first` does, with one exception. If `patience` prefill steps in a row have passed while
    somebody was running, and now somebody runs and somebody waits, this is a decode step. Its `stop` says so with the
    number of prefill steps that have passed: `Stop("DECODE_TURN", {"waited": ..., "patience": patience})`.

    A prefill step in which nobody was running when it began made nobody wait: it does not count. A decode step begins
    the count anew. `patience` is 0 or more; with a very large one, every decision equals that of `prefill_first`.

    A decode step may now fall between two chunks of a long prompt. That prompt waits and holds blocks. If the blocks do
    not suffice for everybody who is to decode, it gives all of its blocks up before anybody who runs is preempted, and
    begins anew later, with chunk 1.
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


def prefill(scheduler: Scheduler) -> tuple[list[Row], Stop]:
    """Rows for those who wait, from the head on, and why it ended there: exactly what `prefill_first` does.

    Only the first sequence of a batch may be cut into chunks; a head that does not fit blocks those behind it.
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


def decode(scheduler: Scheduler) -> tuple[list[Row], Stop, list[Preemption]]:
    """One token for each who runs, in order, up to `max_num_seqs`; why it ended, and who was preempted.

    The order of `running` stays: those who decoded stand in front again, in the order they had.
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")
