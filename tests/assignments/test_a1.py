"""Assignment 1, public tests: each run is small enough to check by hand."""

import pytest

from nanoinfer import simulate
from nanoinfer.course.grading import expect
from nanoinfer.course.kits.a1_closed_trace import closed, seconds
from nanoinfer.course.kits.requests import limits, prompt, tokens

ENDS = "A token is known when its step ends: step.clock + step.timing['duration']."
ARRIVES = "TTFT counts from the arrival of the request, not from the start of the recording."
DROPPED = "A row with token_id None sampled nothing that was kept: it is a middle chunk."
ONCE = "The first token comes once: a preemption does not set its time anew."
OWN = "A gap lies between two tokens of the same request."
LOST = "Count the positions that are computed now and had been computed before; the prefix cache's are not computed."
NEW = "The step that brings a victim back also computes its newest token, for the first time: that is no waste."
SHARE = "Divide by all computed tokens: the sum of num_scheduled over every row of every step."


def run(lengths, max_tokens, limit, **more):
    return closed(simulate([prompt(n, i) for i, n in enumerate(lengths)], tokens(max_tokens), **limit, **more))


@pytest.mark.points(4, part="token times", hint=ENDS)
def test_tokens_of_one_request(impl):
    """One request of four tokens: one prefill step, three decode steps."""
    trace = run([5], 4, limits(4, 8))
    expect("token_times(trace, 0)", impl.token_times(trace, 0), [1, 2, 3, 4])


@pytest.mark.points(5, part="token times", hint=ENDS)
def test_steps_of_unequal_length(impl):
    """With a cost model a step lasts a quarter of a second and an eighth per token."""
    trace = run([5], 3, limits(4, 8), cost_model=seconds)
    expect("token_times(trace, 0)", impl.token_times(trace, 0), [0.875, 1.25, 1.625])


@pytest.mark.points(5, part="token times", hint=DROPPED)
def test_a_prompt_in_three_chunks(impl):
    """A prompt of 20 tokens with a budget of 8: the third chunk samples the first token."""
    trace = run([20], 2, limits(4, 8, budget=8))
    expect("token_times(trace, 0)", impl.token_times(trace, 0), [3, 4])


@pytest.mark.points(5, part="ttft", hint=ARRIVES)
def test_a_request_that_arrives_later(impl):
    """The second request arrives at clock 2 and waits for nobody: its TTFT is 1."""
    trace = run([3, 3], 4, limits(4, 8), arrivals=[0, 2])
    expect("ttft of requests 0 and 1", [impl.ttft(trace, 0), impl.ttft(trace, 1)], [1, 1])


@pytest.mark.points(5, part="ttft", hint="The clock jumps while the engine is idle: use step.clock, not step.index.")
def test_an_idle_engine(impl):
    """Nothing happens between clock 2 and clock 10, and no idle step is recorded."""
    trace = run([3, 3], 2, limits(4, 8), arrivals=[0, 10])
    expect("token_times(trace, 1)", impl.token_times(trace, 1), [11, 12])
    expect("ttft(trace, 1)", impl.ttft(trace, 1), 1)


@pytest.mark.points(6, part="ttft", hint="Where there is no first token yet, the answer is None.")
def test_no_token_yet(impl):
    """Looked at after the first of three chunks, the request has no first token."""
    seen = []
    run([20], 2, limits(4, 8, budget=8), on_step=lambda trace, i: seen.append(impl.ttft(trace, 0)))
    expect("ttft(trace, 0) after each of four steps", seen, [None, None, 3, 3])


@pytest.mark.points(6, part="gaps", hint=OWN)
def test_gaps_of_three_requests(impl):
    """A batch holds two of three requests: the third waits four steps for its second token."""
    trace = run([3, 3, 3], 4, limits(4, 16, seqs=2))
    expect("inter_token_latencies(trace)", impl.inter_token_latencies(trace), [2, 1, 1, 2, 1, 1, 4, 1, 1])


@pytest.mark.points(4, part="gaps", hint="A request of one token has no gap.")
def test_a_single_token_has_no_gap(impl):
    """Two requests of one token each."""
    trace = run([3, 3], 1, limits(4, 16))
    expect("inter_token_latencies(trace)", impl.inter_token_latencies(trace), [])


@pytest.mark.points(5, part="gaps", hint=ONCE)
def test_a_preemption_is_one_long_gap(impl):
    """Request 1 is preempted after its first token and waits until request 0 is done."""
    trace = run([8, 8], 5, limits(4, 5, budget=6))
    expect("ttft(trace, 1)", impl.ttft(trace, 1), 4)
    expect("inter_token_latencies(trace)", impl.inter_token_latencies(trace), [3, 1, 1, 1, 5, 1, 1, 1])


@pytest.mark.points(6, part="waste", hint=NEW)
def test_a_victim_is_computed_again(impl):
    """Without a prefix cache, the victim of 8 computed tokens comes back with 8 + 1 tokens: 8 of them are waste."""
    trace = run([8, 8], 5, limits(4, 5, budget=6), enable_prefix_caching=False)
    expect("recomputed_tokens(trace)", impl.recomputed_tokens(trace), {0: 0, 1: 8})


@pytest.mark.points(5, part="waste", hint=LOST)
def test_the_prefix_cache_gives_back(impl):
    """With the prefix cache the same victim finds its 8 tokens again: it lost nothing."""
    trace = run([8, 8], 5, limits(4, 5, budget=6))
    expect("recomputed_tokens(trace)", impl.recomputed_tokens(trace), {0: 0, 1: 0})


@pytest.mark.points(4, part="waste", hint=SHARE)
def test_share_of_the_waste(impl):
    """8 of 32 computed tokens were computed before."""
    trace = run([8, 8], 5, limits(4, 5, budget=6), enable_prefix_caching=False)
    expect("recompute_share(trace)", impl.recompute_share(trace), 0.25)
