"""What the lessons check a policy with notices what a policy can break."""

from dataclasses import replace

import pytest

from nanoinfer import SamplingParams, simulate
from nanoinfer.course.invariants import check_invariants


@pytest.fixture
def trace():
    prompts = [[1, 2, 3, 4, 5], [11, 12, 13], [21, 22, 23, 24]]
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    return simulate(
        prompts, params, kvcache_block_size=4, num_kvcache_blocks=5, max_num_batched_tokens=8, max_num_seqs=2
    )


def test_a_good_run_passes_under_both_policies_with_preemptions(trace):
    assert check_invariants(trace) == len(trace.steps)
    assert trace.metrics()["num_preemptions"] > 0


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"max_num_batched_tokens": 4}, "over the budget"),
        ({"max_num_seqs": 1}, "over max_num_seqs"),
        ({"num_kvcache_blocks": 6}, "overlap"),
    ],
)
def test_limits_and_the_pool_are_checked(trace, limit, message):
    """The run kept its own limits, so it breaks tighter ones (or a pool of another size)."""
    trace.header.config |= limit
    with pytest.raises(AssertionError, match=message):
        check_invariants(trace)


def test_a_sequence_twice_and_a_row_without_work_are_noticed(trace):
    columns = trace.steps[0].columns
    before = list(columns.seq_id), list(columns.num_scheduled)
    columns.seq_id[1] = columns.seq_id[0]
    with pytest.raises(AssertionError, match="step 0 has a sequence twice"):
        check_invariants(trace)
    columns.seq_id[:], columns.num_scheduled[:] = before
    columns.num_scheduled[0] = 0
    with pytest.raises(AssertionError, match="without work"):
        check_invariants(trace)


def test_a_state_that_does_not_add_up_is_noticed(trace, monkeypatch):
    real = trace.state
    wrong = {
        "twice in the free list": lambda s: replace(s, free_blocks=[*s.free_blocks, *s.free_blocks]),
        "reference counts": lambda s: replace(s, ref_counts=[7] * 5),
        "both queues": lambda s: replace(s, waiting=s.running),
    }
    for message, change in wrong.items():
        monkeypatch.setattr(trace, "state", lambda i, change=change: change(real(i)))
        with pytest.raises(AssertionError, match=message):
            check_invariants(trace)


def test_somebody_left_over_is_noticed(trace):
    del trace.steps[-1]
    with pytest.raises(AssertionError, match="ended before sequences"):
        check_invariants(trace)
