"""Assignment 5, hidden tests: pressure between two chunks, and the promises that every policy keeps."""

import pytest

from nanoinfer import simulate
from nanoinfer.course.grading import explain_failure
from nanoinfer.course.invariants import check_invariants
from nanoinfer.course.kits.a5_fairness import expect_bound, ready_before, run_policy
from nanoinfer.course.kits.requests import limits, prompt, random_requests, tokens
from nanoinfer.trace.state import snapshot

HOLDS = "Who waits between two chunks must not hold what others need: deallocate it before anybody is preempted."
ANEW = "Who gave its blocks up begins anew: set its num_chunks back to 0 as well."
BOUND = "Count the prefill steps that passed while somebody was running; at `patience` of them, decode."
LAZY = "A decode step falls early only if nobody waits or the head does not fit."
PURE = "A plan is a prefill batch or a decode batch, never both."
FOLD = "Change blocks only through the block manager, and tell the recorder who starts to run: a trace needs all of it."
TURN = "With patience 0, nobody is admitted while anybody runs."


def pressed(impl, seed, patience):
    """A random run in a pool that is too small."""
    return run_policy(impl.FairScheduler, patience, **random_requests(seed, spare_blocks=seed % 3).arguments)


def half_prompt(impl):
    """Request 0 needs a block while request 1 waits between two chunks and holds the whole rest of the pool."""
    work = {"prompts": [prompt(7), prompt(20, 1)], "sampling_params": [tokens(6), tokens(4)], "arrivals": [0, 1]}
    return run_policy(impl.FairScheduler, 1, **work, **limits(4, 7, budget=8), enable_prefix_caching=False)


@pytest.mark.points(6, part="pressure", hint=HOLDS, visibility="hidden")
def test_a_half_prompt_gives_way(impl):
    """Request 0 decodes on in step 4 and is never preempted; request 1 has computed 16 of 20 tokens and gives way."""
    trace = half_prompt(impl)
    assert [row.seq_id for row in trace.steps[4].rows] == [0], explain_failure(trace, 4, "a decode of request 0", HOLDS)
    victims = [victim.victim for step in trace.steps for victim in step.preempted]
    assert 0 not in victims
    assert [len(output["token_ids"]) for output in trace.outputs] == [6, 4]


@pytest.mark.points(4, part="pressure", hint=ANEW, visibility="hidden")
def test_a_half_prompt_begins_anew(impl):
    """Its chunks are 1 and 2 of 3, and after it gave way 1, 2 and 3 of 3."""
    trace = half_prompt(impl)
    chunks = [row.chunk for step in trace.steps for row in step.rows if row.seq_id == 1 and row.chunk]
    assert chunks == [(1, 3), (2, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.points(8, part="pressure", hint=HOLDS, visibility="hidden")
@pytest.mark.parametrize("patience", [0, 1, 2, 4])
def test_random_pressure(impl, patience):
    """Thirty random runs in small pools: everybody ends, every promise holds, and the tokens are prefill_first's."""
    for seed in range(30):
        trace = pressed(impl, seed, patience)
        check_invariants(trace)
        work = random_requests(seed, spare_blocks=seed % 3)
        expected = simulate(**work.arguments)
        got = [output["token_ids"] for output in trace.outputs]
        assert got == [output["token_ids"] for output in expected.outputs], f"seed {seed}"


@pytest.mark.points(6, part="bound", hint=BOUND, visibility="hidden")
@pytest.mark.parametrize("patience", [1, 2])
def test_the_bound_under_pressure(impl, patience):
    """Also where somebody is preempted, nobody who is ready stands still for longer."""
    for seed in range(40, 70):
        expect_bound(pressed(impl, seed, patience), patience)


@pytest.mark.points(5, part="bound", hint=LAZY, visibility="hidden")
def test_no_turn_comes_early(impl):
    """A step whose stop is DECODE_TURN follows exactly `patience` prefill steps in which somebody was ready."""
    turns = 0
    for seed in range(30):
        trace = run_policy(impl.FairScheduler, 2, **random_requests(seed).arguments)
        ready = [bool(ids) for _, ids in ready_before(trace)]
        for step in trace.steps:
            if step.phase != "decode" or step.stop.reason != "DECODE_TURN":
                continue
            before = range(step.index - 2, step.index)
            turns += 1
            full = all(ready[i] and trace.steps[i].phase == "prefill" for i in before)
            assert full, explain_failure(trace, step.index, "prefill, or another stop", LAZY)
    assert turns > 20, f"only {turns} decode steps say that it was their turn"


@pytest.mark.points(3, part="bound", hint=TURN, visibility="hidden")
def test_patience_of_zero(impl):
    """One request runs to its end before the next is admitted."""
    prompts = [prompt(5, i) for i in range(3)]
    work = {"prompts": prompts, "sampling_params": tokens(3), "arrivals": [0, 1, 1]}
    trace = run_policy(impl.FairScheduler, 0, **work, **limits(4, 32, budget=5))
    assert [[row.seq_id for row in step.rows] for step in trace.steps] == [[0], [0], [0], [1], [1], [1], [2], [2], [2]]


@pytest.mark.points(4, part="plan", hint=PURE, visibility="hidden")
def test_phases_are_pure(impl):
    """No step of a random run holds both a chunk and a decode row, and the phase says which."""
    for seed in range(20):
        for step in pressed(impl, seed, 1).steps:
            kinds = {"decode" if row.chunk is None else "prefill" for row in step.rows}
            assert kinds == {step.phase}, explain_failure(step.trace, step.index, "rows of one kind", PURE)


@pytest.mark.points(4, part="plan", hint=FOLD, visibility="hidden")
def test_every_trace_folds(impl):
    """After every step, folding the events gives the queues, tables and free list of the live scheduler."""
    for seed in range(20):
        work, live, seen = random_requests(seed, spare_blocks=seed % 3), [], []

        class Seen(impl.FairScheduler):
            def __init__(self, *args, seen=seen):
                super().__init__(*args)
                seen.append(self)

        def look(trace, i, live=live, seen=seen):
            live.append(snapshot(seen[0]))

        trace = run_policy(Seen, 1, on_step=look, **work.arguments)
        for i, state in enumerate(live):
            assert trace.state(i) == state, f"seed {seed}: what the events say after step {i} is not what was there"
