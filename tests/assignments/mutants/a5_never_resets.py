"""Does not set the count back after a decode step, so that it decodes for good.

Hint: A prefill step counts only if somebody was running when it began; a decode step sets the count to 0.
"""

from __future__ import annotations

from nanoinfer import Scheduler
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.reasons import Preemption, Stop, StopReason


def fair(scheduler: Scheduler, patience: int) -> StepPlan:
    ready = bool(scheduler.running)
    waited = getattr(scheduler, "steps_without_decode", 0)
    if ready and scheduler.waiting and waited >= patience:
        rows, stop = [], Stop("DECODE_TURN", {"waited": waited, "patience": patience})
    else:
        rows, stop = prefill(scheduler)
    if rows:
        scheduler.steps_without_decode = waited + 1 if ready else 0
        return StepPlan("prefill", rows, stop, Stop(StopReason.PHASE_EXCLUSIVE))
    rows, decode_stop, preempted = decode(scheduler)
    return StepPlan("decode", rows, stop, decode_stop, preempted)


def prefill(scheduler: Scheduler) -> tuple[list[Row], Stop]:
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


def decode(scheduler: Scheduler) -> tuple[list[Row], Stop, list[Preemption]]:
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
