"""Mixed: whoever runs goes first, then prefill chunks fill what is left of the budget.

The order of vLLM's V1 scheduler: decode and prefill rows share a batch, any sequence may be cut,
and a step that preempted admits nobody. A sequence runs from its first chunk on, so `waiting`
holds only sequences without blocks. Unlike vLLM, a prompt's whole table is reserved at admission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanoinfer.core.plan import Phase, Row, StepPlan
from nanoinfer.reasons import Preemption, Stop, StopReason

if TYPE_CHECKING:
    from nanoinfer.core.scheduler import Scheduler


def schedule(scheduler: Scheduler) -> StepPlan:
    """Rows for `running`, then, unless somebody was preempted, for the head of `waiting`."""
    rows, decode_stop, preempted = _run(scheduler)
    victims = {"victims": len(preempted)}
    stop = Stop(StopReason.PREEMPTED_THIS_STEP, victims) if preempted else _admit(scheduler, rows)
    return StepPlan(_phase(rows), rows, stop, decode_stop, preempted)


def _run(scheduler: Scheduler) -> tuple[list[Row], Stop, list[Preemption]]:
    """Each running sequence in order: its next chunk while it prefills, else one token."""
    running = scheduler.running
    rows: list[Row] = []
    preempted: list[Preemption] = []
    batched = 0
    stop = Stop(StopReason.RUNNING_EMPTY)
    while running:
        full = _batch_is_full(scheduler, len(rows), batched)
        if full:
            stop = full
            break
        seq = running.popleft()
        if seq.is_prefill:
            remaining = scheduler.max_num_batched_tokens - batched
            rows.append(scheduler.schedule_prefill(seq, min(len(seq) - seq.num_computed_tokens, remaining)))
        else:
            can_decode, victims = scheduler.make_room(seq)
            preempted += victims
            if not can_decode:
                continue
            rows.append(scheduler.schedule_decode(seq))
        batched += rows[-1].num_scheduled
    running.extendleft(reversed([row.seq for row in rows]))
    return rows, stop, preempted


def _admit(scheduler: Scheduler, rows: list[Row]) -> Stop:
    """Append a first chunk for each admitted sequence to `rows`; returns why it ended."""
    waiting, blocks = scheduler.waiting, scheduler.block_manager
    batched = sum(row.num_scheduled for row in rows)
    while waiting:
        full = _batch_is_full(scheduler, len(rows), batched)
        if full:
            return full
        seq = waiting[0]
        num_cached_blocks = blocks.can_allocate(seq)
        if num_cached_blocks == -1:
            return scheduler.no_blocks(seq)
        blocks.allocate(seq, num_cached_blocks)
        scheduler.start_running()
        remaining = scheduler.max_num_batched_tokens - batched
        rows.append(scheduler.schedule_prefill(seq, min(len(seq) - seq.num_computed_tokens, remaining)))
        batched += rows[-1].num_scheduled
    return Stop(StopReason.QUEUE_EMPTY)


def _batch_is_full(scheduler: Scheduler, scheduled: int, batched: int) -> Stop | None:
    if scheduled == scheduler.max_num_seqs:
        return Stop(StopReason.MAX_SEQS, {"scheduled": scheduled, "limit": scheduler.max_num_seqs})
    if batched == scheduler.max_num_batched_tokens:
        return Stop(StopReason.TOKEN_BUDGET, {"batched": batched, "limit": scheduler.max_num_batched_tokens})
    return None


def _phase(rows: list[Row]) -> Phase:
    kinds = {row.chunk is None for row in rows}
    return "mixed" if len(kinds) == 2 else "decode" if True in kinds else "prefill"
