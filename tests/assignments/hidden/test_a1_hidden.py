"""Assignment 1, hidden tests: random runs against the definitions of `docs/metrics.md`, and the corners."""

from dataclasses import replace
from itertools import pairwise

import pytest

from nanoinfer import simulate
from nanoinfer.course.kits.a1_closed_trace import closed, seconds
from nanoinfer.course.kits.requests import limits, prompt, random_requests, tokens

TIMES = "Check a run with a cost model, late arrivals and chunks by hand: trace.explain(i) helps."
WASTE = "Keep, per request, how many positions have been computed at some time; what lies below is waste."


def pressed(seed, **more):
    """A random run in a pool that is too small, and its trace with closed figures."""
    work = random_requests(seed, spare_blocks=seed % 3)
    trace = simulate(**work.arguments, **more)
    return trace, closed(trace)


@pytest.mark.points(8, part="ttft", hint=TIMES, visibility="hidden")
@pytest.mark.parametrize("seed", range(4))
def test_ttft_in_random_runs(impl, seed):
    """TTFT of every request of a random run in seconds."""
    trace, shown = pressed(seed, cost_model=seconds)
    expected = [request["ttft"] for request in trace.metrics()["requests"]]
    assert [impl.ttft(shown, seq_id) for seq_id in trace.requests] == pytest.approx(expected)


@pytest.mark.points(8, part="waste", hint=WASTE, visibility="hidden")
@pytest.mark.parametrize("seed", range(4))
def test_waste_in_random_runs(impl, seed):
    """Recomputed tokens of every request of a random run, with several preemptions of one request."""
    trace, shown = pressed(10 + seed, enable_prefix_caching=seed % 2 == 0)
    expected = {request["seq_id"]: request["num_recomputed_tokens"] for request in trace.metrics()["requests"]}
    assert impl.recomputed_tokens(shown) == expected


@pytest.mark.points(7, part="gaps", hint="A gap lies between two tokens of the same request.", visibility="hidden")
@pytest.mark.parametrize("seed", range(3))
def test_gaps_in_random_runs(impl, seed):
    """The gaps of a random run add up to last token minus first token, request by request, in order of the ids."""
    trace, shown = pressed(20 + seed, cost_model=seconds)
    per_request = [impl.token_times(shown, seq_id) for seq_id in sorted(trace.requests)]
    expected = [later - earlier for times in per_request for earlier, later in pairwise(times)]
    assert [len(times) for times in per_request] == [len(output["token_ids"]) for output in trace.outputs]
    assert impl.inter_token_latencies(shown) == pytest.approx(expected)


@pytest.mark.points(5, part="ttft", hint="A request whose arrival is None has no TTFT.", visibility="hidden")
def test_a_request_older_than_the_recording(impl):
    """A warm engine: request 0 was submitted before the recording began."""
    trace = closed(simulate([prompt(3), prompt(3, 1)], tokens(2), **limits(4, 8)))
    trace.requests[0] = replace(trace.requests[0], arrival=None)
    assert impl.ttft(trace, 0) is None
    assert impl.ttft(trace, 1) == 1


@pytest.mark.points(4, part="token times", hint="Use timing['duration'] of the step.", visibility="hidden")
def test_an_overlapped_run(impl):
    """Overlapped steps last two launches each."""
    trace = closed(simulate([prompt(3), prompt(3, 1)], tokens(3), overlap=True, **limits(4, 8)))
    assert impl.token_times(trace, 1) == [2, 3, 4]


@pytest.mark.points(4, part="waste", hint="An empty trace has computed nothing: 0.0.", visibility="hidden")
def test_a_trace_without_steps(impl):
    """Nothing was run."""
    trace = closed(simulate([], tokens(1)))
    assert impl.recompute_share(trace) == 0.0
    assert impl.inter_token_latencies(trace) == []


@pytest.mark.points(4, part="waste", hint="Divide by all computed tokens of the run.", visibility="hidden")
@pytest.mark.parametrize("seed", range(2))
def test_share_in_random_runs(impl, seed):
    """Waste over all computed tokens."""
    trace, shown = pressed(30 + seed, enable_prefix_caching=False)
    computed = sum(step.num_batched_tokens for step in trace.steps)
    wasted = trace.metrics()["recomputed_tokens"]
    assert wasted > 0
    assert impl.recompute_share(shown) == pytest.approx(wasted / computed)
