"""Assignment 4, public tests: runs that were worked out by hand. A share reads sequence:computed+scheduled."""

import pytest

from nanoinfer.course.grading import explain_failure, run_student
from nanoinfer.course.kits.reference import expect_steps
from nanoinfer.course.kits.requests import limits, prompt, tokens

TAIL = "The victim is the last of running: it came last, and the least work is lost with it."
SELF = "With nobody behind it, a sequence preempts itself, has no row in this step, and waits."
FRONT = "A victim goes to the front of waiting; of two victims the one that ran before stands before."
FREED = "A victim gives up all its blocks, and they come to the free list."
SHARED = "Preemption.blocks counts the blocks that came to the free list; those that others hold stay with them."
LOST = "Preemption.tokens counts the computed tokens; read the counter before the blocks are freed."
AGAIN = "The re-prefill computes the old tokens and the newest one, and its sample is a new token: keep it."
KEPT = "A victim keeps its token_ids: only the KV is lost."
CHUNKS = "A victim comes back as any prompt does: in chunks where it is longer than the budget."
ORDER = "The batch stays at the front of running, in order."
ONLY_IF = "Preempt only where can_append says that there is no place."
COUNTS = "Count every preemption of a sequence in num_preemptions."


def run(impl, lengths, max_tokens, limit, **more):
    params = tokens(max_tokens) if isinstance(max_tokens, int) else [tokens(n) for n in max_tokens]
    prompts = [prompt(n, i) for i, n in enumerate(lengths)]
    return run_student(prompts, params, scheduler_cls=impl.Scheduler, **limit, **more)


def expect_victims(trace, expected, why):
    """`expected`: (step, victim, on behalf of, rule) of every preemption."""
    got = [(step.index, p.victim, p.on_behalf_of, p.rule) for step in trace.steps for p in step.preempted]
    first = next((pair for pair in zip(got, expected, strict=False) if pair[0] != pair[1]), (got or expected)[-1:])
    assert got == expected, explain_failure(trace, first[0][0] if first else 0, f"victims {expected}, got {got}", why)


def expect_queues(trace, step, waiting, running, why):
    got = trace.steps[step].waiting, trace.steps[step].running
    assert got == (waiting, running), explain_failure(trace, step, f"waiting {waiting}, running {running}", why)


@pytest.mark.points(4, part="decode", hint=ONLY_IF)
def test_no_free_block_and_no_need_of_one(impl):
    """Three requests hold all four blocks, and their newest tokens have a place in them: nobody is preempted."""
    trace = run(impl, [3, 5, 2], 2, limits(4, 4))
    expect_steps(trace, ["prefill 0:0+3 1:0+5 2:0+2", "decode 0:3+1 1:5+1 2:2+1"], ONLY_IF)
    expect_victims(trace, [], ONLY_IF)


@pytest.mark.points(4, part="decode", hint=ORDER)
def test_the_order_of_running(impl):
    """Room for all: running keeps its order from step to step."""
    trace = run(impl, [3, 5, 4], 4, limits(4, 12))
    expect_steps(trace, ["prefill 0:0+3 1:0+5 2:0+4", "decode 0:3+1 1:5+1 2:4+1", "decode 0:4+1 1:6+1 2:5+1"], ORDER)
    expect_queues(trace, 2, [], [0, 1, 2], ORDER)


@pytest.mark.points(5, part="victims", hint=TAIL)
def test_the_last_of_running_is_the_victim(impl):
    """Three requests fill six blocks. When the first needs a third block, the third request loses its two."""
    trace = run(impl, [4, 4, 4], 9, limits(4, 6))
    expect_victims(trace, [(5, 2, 0, "tail")], TAIL)
    expect_steps(trace, ["prefill 0:0+4 1:0+4 2:0+4"], TAIL)
    expect_queues(trace, 5, [2], [0, 1], TAIL)


@pytest.mark.points(6, part="victims", hint=SELF)
def test_nobody_behind(impl):
    """The second of two needs a block, and nobody is behind it."""
    trace = run(impl, [8, 8], 5, limits(4, 5))
    expect_victims(trace, [(1, 1, 1, "self")], SELF)
    expect_steps(trace, ["prefill 0:0+8 1:0+8", "decode 0:8+1", "decode 0:9+1"], SELF)
    expect_queues(trace, 1, [1], [0], SELF)


@pytest.mark.points(5, part="victims", hint=FRONT)
def test_two_victims_in_one_step(impl):
    """Four requests fill eight blocks; the first two need one more each."""
    trace = run(impl, [8, 8, 8, 8], 6, limits(4, 8))
    expect_victims(trace, [(1, 3, 0, "tail"), (1, 2, 2, "self")], FRONT)
    expect_queues(trace, 1, [2, 3], [0, 1], FRONT)


@pytest.mark.points(5, part="blocks", hint=SHARED)
def test_a_victim_that_shares_its_blocks(impl):
    """Three prompts with the same first eight tokens: a victim holds three blocks and sets one of them free."""
    prompts = [prompt(8, 0) + prompt(1, i + 1) for i in range(3)]
    classes = {"scheduler_cls": impl.Scheduler}
    trace = run_student(prompts, tokens(5), arrivals=[0, 1, 2], **classes, **limits(4, 5))
    expect_victims(trace, [(6, 2, 0, "tail"), (6, 1, 1, "self")], SHARED)
    got = [p.blocks for p in trace.steps[6].preempted]
    assert got == [1, 1], explain_failure(trace, 6, f"one block each, got {got}", SHARED)


@pytest.mark.points(5, part="blocks", hint=FREED)
def test_a_victim_gives_up_its_blocks(impl):
    """The victim's two blocks come to the free list, the last one first."""
    trace = run(impl, [8, 8], 5, limits(4, 5))
    assert [p.blocks for p in trace.steps[1].preempted] == [2], explain_failure(trace, 1, "2 blocks", FREED)
    assert trace.steps[1].free_blocks == [3, 2], explain_failure(trace, 1, "free blocks [3, 2]", FREED)


@pytest.mark.points(4, part="blocks", hint=LOST)
def test_what_a_victim_loses(impl):
    """The record says how many computed tokens were lost."""
    trace = run(impl, [4, 4, 4], 9, limits(4, 6))
    got = [p.tokens for step in trace.steps for p in step.preempted]
    assert got == [8], explain_failure(trace, 5, f"8 tokens lost, got {got}", LOST)


@pytest.mark.points(5, part="recompute", hint=AGAIN)
def test_a_victim_comes_back(impl):
    """Its 8 + 1 tokens are computed again (its blocks were overwritten), and that step gives the next token."""
    trace = run(impl, [4, 4, 4], 9, limits(4, 6))
    assert len(trace.steps) == 13, explain_failure(trace, -1, "13 steps in all", AGAIN)
    got = [(row.num_computed, row.num_scheduled, row.token_id is not None) for row in trace.steps[9].rows]
    assert got == [(0, 9, True)], explain_failure(trace, 9, "prefill 2:0+9 with a token", AGAIN)


@pytest.mark.points(5, part="recompute", hint="What the prefix cache still holds of a victim is not computed again.")
def test_the_prefix_cache_brings_a_victim_back(impl):
    """Nobody has taken its two blocks: only its newest token is computed."""
    trace = run(impl, [8, 8], 5, limits(4, 5))
    expect_steps(trace, ["prefill 0:0+8 1:0+8", *(f"decode 0:{n}+1" for n in (8, 9, 10, 11)), "prefill 1:8+1"], AGAIN)
    assert trace.steps[5].rows[0].token_id is not None, explain_failure(trace, 5, "a token of the re-prefill", AGAIN)


@pytest.mark.points(4, part="recompute", hint=CHUNKS)
def test_a_victim_longer_than_the_budget(impl):
    """A victim of 12 + 1 tokens comes back with a budget of 6: three chunks."""
    settings = limits(4, 6, budget=6) | {"enable_prefix_caching": False}
    trace = run(impl, [5, 8, 7], [12, 6, 3], settings)
    assert len(trace.steps) == 22, explain_failure(trace, -1, "22 steps in all", CHUNKS)
    got = [(row.num_computed, row.num_scheduled, row.chunk) for step in trace.steps[16:19] for row in step.rows]
    expected = [(0, 6, (1, 3)), (6, 6, (2, 3)), (12, 1, (3, 3))]
    assert got == expected, explain_failure(trace, 16, f"chunks {expected}, got {got}", CHUNKS)


@pytest.mark.points(5, part="recompute", hint=KEPT)
def test_no_token_is_lost_or_repeated(impl):
    """Four requests in five blocks, preempted five times, give what they give in a large pool."""
    small = run(impl, [4, 4, 4, 4], 12, limits(4, 5))
    large = run(impl, [4, 4, 4, 4], 12, limits(4, 50))
    got, expected = ([output["token_ids"] for output in trace.outputs] for trace in (small, large))
    assert got == expected, explain_failure(small, -1, f"outputs {expected}, got {got}", KEPT)


@pytest.mark.points(3, part="recompute", hint=COUNTS)
def test_preemptions_are_counted(impl):
    """Of four requests in five blocks the last two are preempted twice."""
    trace = run(impl, [4, 4, 4, 4], 12, limits(4, 5))
    got = [output["num_preemptions"] for output in trace.outputs]
    assert got == [0, 1, 2, 2], explain_failure(trace, -1, f"0, 1, 2, 2 preemptions, got {got}", COUNTS)
