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
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


def ttft(trace: Trace, seq_id: int) -> float | None:
    """Time to first token: from the arrival of the request to its first token.

    None if no token is known yet, or if the request is older than the recording (its arrival is None).
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


def inter_token_latencies(trace: Trace) -> list[float]:
    """The times between two neighbouring tokens of the same request: first all of request 0, then of 1, and so on."""
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


def recomputed_tokens(trace: Trace) -> dict[int, int]:
    """For every request: how many token positions were computed although their KV had existed once before.

    That is what a preemption costs. A position that the prefix cache gave back was not computed, so it does not count;
    neither does a position that is computed for the first time, even in the step that brings a victim back.
    """
    # YOUR CODE HERE
    raise NotImplementedError("to be written")


def recompute_share(trace: Trace) -> float:
    """Which part of all computed tokens was recompute waste, from 0 to 1; 0.0 for a trace without steps."""
    # YOUR CODE HERE
    raise NotImplementedError("to be written")
