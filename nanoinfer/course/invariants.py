"""What every plan of every policy must keep, checked on the recording of a run."""

from __future__ import annotations

from nanoinfer.trace.state import SchedulerState
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace


def check_invariants(trace: Trace) -> int:
    """Check every step of a run; the number of steps.

    A batch keeps both limits, has each sequence once, and gives every row work; each block is free or held, and the
    reference counts say by how many; no sequence is in both queues; at the end none is left.

    Raises:
        AssertionError: a promise is broken; names the step and the promise.
    """
    for step in trace.steps:
        _check_batch(trace, step)
        _check_pool(trace, step.index, trace.state(step.index))
    last = trace.state(-1)
    unfinished = [*last.waiting, *last.running]
    assert not unfinished, f"the run ended before sequences {unfinished}"
    return len(trace.steps)


def _check_batch(trace: Trace, step: Step) -> None:
    config, name = trace.config, f"step {step.index}"
    ids = [row.seq_id for row in step.rows]
    prefilled = sum(row.num_scheduled for row in step.rows if row.chunk)
    assert prefilled <= config.max_num_batched_tokens, f"{name} prefills {prefilled} tokens, over the budget"
    assert len(ids) <= config.max_num_seqs, f"{name} has {len(ids)} sequences, over max_num_seqs"
    assert len(set(ids)) == len(ids), f"{name} has a sequence twice: {ids}"
    assert all(row.num_scheduled > 0 for row in step.rows), f"{name} has a row without work"


def _check_pool(trace: Trace, index: int, state: SchedulerState) -> None:
    held = [0] * trace.config.num_kvcache_blocks
    for table in state.block_tables.values():
        for block in table:
            held[block] += 1
    free = state.free_blocks
    assert len(set(free)) == len(free), f"step {index}: a block twice in the free list"
    assert set(free) == {b for b, count in enumerate(held) if count == 0}, f"step {index}: free and held blocks overlap"
    assert state.ref_counts == held, f"step {index}: reference counts differ from the block tables"
    assert not set(state.waiting) & set(state.running), f"step {index}: a sequence in both queues"
