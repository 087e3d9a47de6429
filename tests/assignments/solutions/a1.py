"""Assignment 1: read a trace.

Compute latency figures and the cost of preemption from the steps of a trace. `docs/metrics.md` defines the words.
Read `trace.steps` and `trace.requests`; `trace.metrics()` and `trace.to_pandas()` are closed while you are graded.
"""

from itertools import pairwise

from nanoinfer import Trace


def token_times(trace: Trace, seq_id: int) -> list[float]:
    """The clock values at which the tokens of one request were known, in order.

    A token is known when the step that sampled it ends: `step.clock + step.timing["duration"]`.
    A row whose `token_id` is None sampled nothing that was kept.
    """
    # BEGIN SOLUTION
    return [
        step.clock + step.timing["duration"]
        for step in trace.steps
        for row in step.rows
        if row.seq_id == seq_id and row.token_id is not None
    ]
    # END SOLUTION


def ttft(trace: Trace, seq_id: int) -> float | None:
    """Time to first token: from the arrival of the request to its first token.

    None if no token is known yet, or if the request is older than the recording (its arrival is None).
    """
    # BEGIN SOLUTION
    arrival = trace.requests[seq_id].arrival
    times = token_times(trace, seq_id)
    if arrival is None or not times:
        return None
    return times[0] - arrival
    # END SOLUTION


def inter_token_latencies(trace: Trace) -> list[float]:
    """The times between two neighbouring tokens of the same request: first all of request 0, then of 1, and so on."""
    # BEGIN SOLUTION
    gaps = []
    for seq_id in sorted(trace.requests):
        gaps += [later - earlier for earlier, later in pairwise(token_times(trace, seq_id))]
    return gaps
    # END SOLUTION


def recomputed_tokens(trace: Trace) -> dict[int, int]:
    """For every request: how many token positions were computed although their KV had existed once before.

    That is what a preemption costs. A position that the prefix cache gave back was not computed, so it does not count;
    neither does a position that is computed for the first time, even in the step that brings a victim back.
    """
    # BEGIN SOLUTION
    waste = dict.fromkeys(trace.requests, 0)
    once = dict.fromkeys(trace.requests, 0)  # positions below this had their KV at some time
    for step in trace.steps:
        for row in step.rows:
            end = row.num_computed + row.num_scheduled
            waste[row.seq_id] += max(0, min(once[row.seq_id], end) - row.num_computed)
            once[row.seq_id] = max(once[row.seq_id], end)
    return waste
    # END SOLUTION


def recompute_share(trace: Trace) -> float:
    """Which part of all computed tokens was recompute waste, from 0 to 1; 0.0 for a trace without steps."""
    # BEGIN SOLUTION
    computed = sum(row.num_scheduled for step in trace.steps for row in step.rows)
    return sum(recomputed_tokens(trace).values()) / computed if computed else 0.0
    # END SOLUTION
