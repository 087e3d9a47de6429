"""Assignment 5: a fairer policy.

`prefill_first` lets nobody decode while anybody who waits can be prefilled. Write a policy that does the same, but sets
a bound: while somebody is ready to decode, at most `patience` steps in a row pass without a decode step.

A policy is a function from a scheduler to the plan of its next step. Read `prefill_first` first, it is 75 lines:

    import inspect; from nanoinfer.core.policies import prefill_first; print(inspect.getsource(prefill_first))

Write yours yourself: a policy that calls nanoinfer's own fails. Act only through the scheduler's moves
(`schedule_prefill`, `schedule_decode`, `start_running`, `make_room`, `preempt`, `no_blocks`) and the block manager's
(`can_allocate`, `allocate`, `can_append`, `deallocate`).
"""

from __future__ import annotations

from nanoinfer import Scheduler
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.reasons import Preemption, Stop, StopReason


def fair(scheduler: Scheduler, patience: int) -> StepPlan:
    """The plan of the next step: a prefill batch or a decode batch, never both in one.

    It plans as `prefill_first` does, with one exception. If `patience` prefill steps in a row have passed while
    somebody was running, and now somebody runs and somebody waits, this is a decode step. Its `stop` says so with the
    number of prefill steps that have passed: `Stop("DECODE_TURN", {"waited": ..., "patience": patience})`. A reason may
    be a text. It is the turn even if the head would not have fitted: nobody looks at the head in such a step.

    A prefill step in which nobody was running when it began made nobody wait: it does not count. A decode step begins
    the count anew. `patience` is 0 or more; with a very large one, every decision equals that of `prefill_first`.
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

    A decode step may fall between two chunks of a long prompt, which waits then and holds blocks. When somebody whose
    turn it is cannot append, that prompt gives all its blocks up before anybody who runs is preempted. It has not run,
    so it is not listed among the preempted. It begins anew later, with chunk 1: who takes its blocks sets `num_chunks`
    to 0, as `Scheduler.preempt` does for a victim.
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")
