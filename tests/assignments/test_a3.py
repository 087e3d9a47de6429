"""Assignment 3, public tests: runs that were worked out by hand. A share reads sequence:computed+scheduled."""

import pytest

from nanoinfer.course.grading import expect, explain_failure, run_student
from nanoinfer.course.kits.reference import expect_steps
from nanoinfer.course.kits.requests import limits, prompt, tokens

PHASES = "While somebody who waits can be prefilled, nobody decodes."
FIRST_ONLY = "Only the first sequence of a batch may be cut into chunks; another that does not fit ends the batch."
CHUNK = "A chunk is as large as the budget; the sequence stays at the head of waiting until its last chunk."
DROPPED = "A middle chunk's sample is dropped: that position is not the end of the sequence."
EXACT = "A used-up budget ends the loop before the next sequence is looked at: no row of 0 tokens."
BATCH_CAP = "max_num_seqs limits the rows of one batch, not how many sequences run."
FRONT = "Decode is not round robin: the batch is the front of running, and running keeps its order."
BLOCKED = "A head that does not fit blocks those behind it: first come, first served."
LOOKUP = "Look into the prefix cache first: what it holds need not be computed."
STOPPING = "Count completion tokens after the append, and free the blocks of whoever is done."


def run(impl, lengths, max_tokens, limit, **more):
    params = tokens(max_tokens) if isinstance(max_tokens, int) else [tokens(n) for n in max_tokens]
    prompts = [prompt(n, i) for i, n in enumerate(lengths)]
    return run_student(prompts, params, scheduler_cls=impl.Scheduler, **limit, **more)


def expect_stops(trace, expected, why):
    for i, words in enumerate(expected):
        assert str(trace.steps[i].stop) == words, explain_failure(trace, i, f"stop {words}", why)


@pytest.mark.points(5, part="phases", hint=PHASES)
def test_one_request(impl):
    """A prompt of five tokens: one prefill step, then one token a step."""
    trace = run(impl, [5], 4, limits(4, 8))
    expect_steps(trace, ["prefill 0:0+5", "decode 0:5+1", "decode 0:6+1", "decode 0:7+1"], PHASES)
    assert len(trace.steps) == 4, explain_failure(trace, -1, "4 steps in all", STOPPING)


@pytest.mark.points(5, part="phases", hint=PHASES)
def test_newcomers_go_first(impl):
    """A new prompt comes before each of six steps: the first request gets its second token only at step 7."""
    trace = run(impl, [5] * 7, [4, 1, 1, 1, 1, 1, 1], limits(4, 32, budget=8), arrivals=[0, 0, 1, 2, 3, 4, 5])
    expected = [f"prefill {i}:0+5" for i in range(7)]
    expect_steps(trace, [*expected, "decode 0:5+1"], PHASES)


@pytest.mark.points(6, part="chunks", hint=FIRST_ONLY)
def test_prompts_are_packed_into_the_budget(impl):
    """6, 7 and 5 tokens with a budget of 16: the third has to wait for a batch of its own."""
    trace = run(impl, [6, 7, 5], 3, limits(4, 32, budget=16, seqs=3))
    expected = ["prefill 0:0+6 1:0+7", "prefill 2:0+5", "decode 0:6+1 1:7+1 2:5+1", "decode 0:7+1 1:8+1 2:6+1"]
    expect_steps(trace, expected, FIRST_ONLY)


@pytest.mark.points(5, part="chunks", hint=CHUNK)
def test_a_long_prompt_in_chunks(impl):
    """20 tokens with a budget of 8."""
    trace = run(impl, [20], 2, limits(4, 8, budget=8))
    expect_steps(trace, ["prefill 0:0+8", "prefill 0:8+8", "prefill 0:16+4", "decode 0:20+1"], CHUNK)
    assert trace.steps[0].waiting == [0], explain_failure(trace, 0, "0 still at the head of waiting", CHUNK)


@pytest.mark.points(5, part="chunks", hint=DROPPED)
def test_a_middle_chunk_gives_no_token(impl):
    """Three chunks, then one more step: two tokens in all."""
    trace = run(impl, [20], 2, limits(4, 8, budget=8))
    got = [step.rows[0].token_id is not None for step in trace.steps]
    assert got == [False, False, True, True], explain_failure(trace, 0, "no token of a middle chunk", DROPPED)
    expect("tokens in the output", len(trace.outputs[0]["token_ids"]), 2)


@pytest.mark.points(5, part="chunks", hint=CHUNK)
def test_the_last_chunk_leaves_room(impl):
    """10, 5 and 7 tokens with a budget of 8: the last chunk of the first shares its step with the second."""
    trace = run(impl, [10, 5, 7], 2, limits(4, 16, budget=8))
    expected = ["prefill 0:0+8", "prefill 0:8+2 1:0+5", "prefill 2:0+7", "decode 0:10+1 1:5+1 2:7+1"]
    expect_steps(trace, expected, CHUNK)


@pytest.mark.points(5, part="chunks", hint=EXACT)
def test_an_exact_fit(impl):
    """8 and 3 tokens with a budget of 8: the first uses it up."""
    trace = run(impl, [8, 3], 1, limits(4, 8, budget=8))
    expect_steps(trace, ["prefill 0:0+8", "prefill 1:0+3"], EXACT)
    expect_stops(trace, ["TOKEN_BUDGET batched=8 limit=8", "QUEUE_EMPTY"], EXACT)


@pytest.mark.points(5, part="limits", hint=BATCH_CAP)
def test_more_run_than_a_batch_holds(impl):
    """Three requests and batches of two: all three run, two of them decode."""
    trace = run(impl, [3, 3, 3], 4, limits(4, 16, seqs=2))
    expect_steps(trace, ["prefill 0:0+3 1:0+3", "prefill 2:0+3", "decode 0:3+1 1:3+1"], BATCH_CAP)
    assert trace.steps[1].running == [0, 1, 2], explain_failure(trace, 1, "running 0, 1, 2", BATCH_CAP)


@pytest.mark.points(5, part="limits", hint=FRONT)
def test_decode_takes_the_front_of_running(impl):
    """The third request decodes when the first two are done."""
    trace = run(impl, [3, 3, 3], 4, limits(4, 16, seqs=2))
    decodes = [f"decode 0:{n}+1 1:{n}+1" for n in (3, 4, 5)] + [f"decode 2:{n}+1" for n in (3, 4, 5)]
    expect_steps(trace, ["prefill 0:0+3 1:0+3", "prefill 2:0+3", *decodes], FRONT)
    assert trace.steps[2].running == [0, 1, 2], explain_failure(trace, 2, "running 0, 1, 2", FRONT)


@pytest.mark.points(5, part="blocks", hint=BLOCKED)
def test_a_head_that_does_not_fit_blocks_the_others(impl):
    """Four blocks: a prompt of 14 waits for them, and a prompt of 2 waits behind it."""
    trace = run(impl, [4, 14, 2], [6, 1, 1], limits(4, 4))
    decodes = [f"decode 0:{n}+1" for n in range(4, 9)]
    expect_steps(trace, ["prefill 0:0+4", *decodes, "prefill 1:0+14", "prefill 2:0+2"], BLOCKED)


@pytest.mark.points(5, part="blocks", hint=LOOKUP)
def test_cached_tokens_are_not_computed(impl):
    """The same nine tokens again, with a budget of 4: two chunks and a rest at first, one token the second time."""
    classes = {"scheduler_cls": impl.Scheduler}
    trace = run_student([prompt(9), prompt(9)], tokens(1), arrivals=[0, 3], **classes, **limits(4, 8, budget=4))
    expect_steps(trace, ["prefill 0:0+4", "prefill 0:4+4", "prefill 0:8+1", "prefill 1:8+1"], LOOKUP)


@pytest.mark.points(4, part="stopping", hint=STOPPING)
def test_requests_of_one_two_and_three_tokens(impl):
    """Each gives exactly as many tokens as it asked for, and all blocks come back."""
    trace = run(impl, [2, 2, 2], [1, 2, 3], limits(4, 8))
    assert [len(output["token_ids"]) for output in trace.outputs] == [1, 2, 3], explain_failure(
        trace, -1, "1, 2 and 3 tokens", STOPPING
    )
    assert sorted(trace.steps[-1].free_blocks) == list(range(8)), explain_failure(trace, -1, "8 free blocks", STOPPING)
    expect("the finish reasons", [output["finish_reason"] for output in trace.outputs], ["length"] * 3)
