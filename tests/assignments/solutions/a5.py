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
    # BEGIN SOLUTION
    ready = bool(scheduler.running)
    waited = getattr(scheduler, "steps_without_decode", 0)
    if ready and scheduler.waiting and waited >= patience:
        rows, stop = [], Stop("DECODE_TURN", {"waited": waited, "patience": patience})
    else:
        rows, stop = prefill(scheduler)
    if rows:
        scheduler.steps_without_decode = waited + 1 if ready else 0
        return StepPlan("prefill", rows, stop, Stop(StopReason.PHASE_EXCLUSIVE))
    scheduler.steps_without_decode = 0
    rows, decode_stop, preempted = decode(scheduler)
    return StepPlan("decode", rows, stop, decode_stop, preempted)
    # END SOLUTION


def prefill(scheduler: Scheduler) -> tuple[list[Row], Stop]:
    """Rows for those who wait, from the head on, and why it ended there: exactly what `prefill_first` does.

    Only the first sequence of a batch may be cut into chunks; a head that does not fit blocks those behind it.
    """
    # BEGIN SOLUTION
    waiting, blocks = scheduler.waiting, scheduler.block_manager
    rows = []
    budget = remaining = scheduler.max_num_batched_tokens
    while waiting:
        if len(rows) == scheduler.max_num_seqs:
            return rows, Stop(StopReason.MAX_SEQS, {"scheduled": len(rows), "limit": scheduler.max_num_seqs})
        if remaining == 0:
            return rows, Stop(StopReason.TOKEN_BUDGET, {"batched": budget, "limit": budget})
        seq = waiting[0]
        cached = 0 if seq.block_table else blocks.can_allocate(seq)
        if cached == -1:
            return rows, scheduler.no_blocks(seq)
        needed = len(seq) - seq.num_computed_tokens - cached * blocks.block_size
        if rows and needed > remaining:
            return rows, Stop(StopReason.CHUNK_NOT_ALLOWED, {"needed": needed, "remaining": remaining})
        if not seq.block_table:
            blocks.allocate(seq, cached)
        rows.append(scheduler.schedule_prefill(seq, min(needed, remaining)))
        if needed <= remaining:
            scheduler.start_running()
        remaining -= rows[-1].num_scheduled
    return rows, Stop(StopReason.QUEUE_EMPTY)
    # END SOLUTION


def decode(scheduler: Scheduler) -> tuple[list[Row], Stop, list[Preemption]]:
    """One token for each who runs, in order, up to `max_num_seqs`; why it ended, and who was preempted.

    The order of `running` stays: those who decoded stand in front again, in the order they had.

    A decode step may fall between two chunks of a long prompt, which waits then and holds blocks. When somebody whose
    turn it is cannot append, that prompt gives all its blocks up before anybody who runs is preempted. It has not run,
    so it is not listed among the preempted. It begins anew later, with chunk 1: who takes its blocks sets `num_chunks`
    to 0, as `Scheduler.preempt` does for a victim.
    """
    # BEGIN SOLUTION
    running, limit = scheduler.running, scheduler.max_num_seqs
    rows, preempted = [], []
    stop = Stop(StopReason.RUNNING_EMPTY)
    while running:
        if len(rows) == limit:
            stop = Stop(StopReason.MAX_SEQS, {"scheduled": limit, "limit": limit})
            break
        seq = running.popleft()
        if not scheduler.block_manager.can_append(seq):  # else the head of waiting may need what another one holds
            for half_prompt in scheduler.waiting:
                scheduler.block_manager.deallocate(half_prompt)
                half_prompt.num_chunks = 0
        can_decode, victims = scheduler.make_room(seq)
        preempted += victims
        if can_decode:
            rows.append(scheduler.schedule_decode(seq))
    running.extendleft(row.seq for row in reversed(rows))
    return rows, stop, preempted
    # END SOLUTION
