"""Prefill first: while anybody who waits can be prefilled, nobody decodes (the default).

Strict first come, first served: a head that does not fit blocks those behind it. Only the first
sequence of a batch may be cut into chunks. A batch is all prefill or all decode, never mixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.reasons import Preemption, Stop, StopReason

if TYPE_CHECKING:
    from nanoinfer.core.scheduler import Scheduler


def schedule(scheduler: Scheduler) -> StepPlan:
    """A prefill batch if one can be made, else a decode batch."""
    rows, stop = _prefill(scheduler)
    if rows:
        return StepPlan("prefill", rows, stop, Stop(StopReason.PHASE_EXCLUSIVE))
    rows, decode_stop, preempted = _decode(scheduler)
    return StepPlan("decode", rows, stop, decode_stop, preempted)


def _prefill(scheduler: Scheduler) -> tuple[list[Row], Stop]:
    """Pack waiting sequences from the head until one of five things ends it."""
    waiting, blocks = scheduler.waiting, scheduler.block_manager
    rows: list[Row] = []
    batched, budget = 0, scheduler.max_num_batched_tokens
    while True:
        if not waiting:
            return rows, Stop(StopReason.QUEUE_EMPTY)
        if len(rows) == scheduler.max_num_seqs:
            return rows, Stop(StopReason.MAX_SEQS, {"scheduled": len(rows), "limit": scheduler.max_num_seqs})
        if batched == budget:
            return rows, Stop(StopReason.TOKEN_BUDGET, {"batched": batched, "limit": budget})
        seq = waiting[0]
        num_cached_blocks = 0
        if not seq.block_table:
            num_cached_blocks = blocks.can_allocate(seq)
            if num_cached_blocks == -1:
                return rows, scheduler.no_blocks(seq)
        # A sequence with a table is between two chunks: its hits are among its computed tokens.
        needed = len(seq) - seq.num_computed_tokens - num_cached_blocks * blocks.block_size
        remaining = budget - batched
        if needed > remaining and rows:
            return rows, Stop(StopReason.CHUNK_NOT_ALLOWED, {"needed": needed, "remaining": remaining})
        if not seq.block_table:
            blocks.allocate(seq, num_cached_blocks)
        rows.append(scheduler.schedule_prefill(seq, min(needed, remaining)))
        batched += rows[-1].num_scheduled
        if needed <= remaining:
            scheduler.start_running()


def _decode(scheduler: Scheduler) -> tuple[list[Row], Stop, list[Preemption]]:
    """One token for each running sequence in order, preempting from the tail where blocks run out."""
    running = scheduler.running
    rows: list[Row] = []
    preempted: list[Preemption] = []
    stop = Stop(StopReason.RUNNING_EMPTY)
    while running:
        if len(rows) == scheduler.max_num_seqs:
            stop = Stop(StopReason.MAX_SEQS, {"scheduled": len(rows), "limit": scheduler.max_num_seqs})
            break
        seq = running.popleft()
        can_decode, victims = scheduler.make_room(seq)
        preempted += victims
        if can_decode:
            rows.append(scheduler.schedule_decode(seq))
    # extendleft turns the order around, so turn it around first: the batch stays at the front.
    running.extendleft(reversed([row.seq for row in rows]))
    return rows, stop, preempted
