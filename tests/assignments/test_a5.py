"""Assignment 5, public tests: small runs with every phase worked out, and the bound in random ones."""

import pytest

from nanoinfer import compare, simulate
from nanoinfer.course.grading import explain_failure
from nanoinfer.course.invariants import check_invariants
from nanoinfer.course.kits.a5_fairness import decoding, expect_bound, expect_phases, run_policy
from nanoinfer.course.kits.requests import limits, prompt, random_requests, tokens

BOUND = "Count the prefill steps that passed while somebody was running; at `patience` of them, decode."
LAZY = "Until the bound is reached, prefill goes first, exactly as in the default policy."
SAME = "_prefill and _decode do what the default's do: its rows, its order, its reasons in the order it tests them."
COUNT = "A prefill step counts only if somebody was running when it began; a decode step sets the count to 0."
CHUNKS = "A long prompt in chunks makes others wait as well: the turn may come between two of its chunks."
WHY = 'The stop of such a step is Stop("DECODE_TURN", {"waited": ..., "patience": patience}), and of no other step.'
ALL = "A decode step gives one token to everybody who runs, in order, up to max_num_seqs."
ENGINE = "Keep the count on the scheduler, not in a global variable: two engines must not count together."
ORDER = "extendleft turns the order around: give it the rows in reverse."
HOLDS = "Who waits between two chunks must not hold what others need: deallocate it before anybody is preempted."
ANEW = "Who gave its blocks up begins anew: set its num_chunks back to 0 as well."


def run(impl, patience, lengths, max_tokens, arrivals, limit):
    """Requests of these lengths that share nothing, under FairScheduler with this patience."""
    prompts = [prompt(n, i) for i, n in enumerate(lengths)]
    params = [tokens(n) for n in max_tokens]
    return run_policy(impl.FairScheduler, patience, prompts=prompts, sampling_params=params, arrivals=arrivals, **limit)


def expect_decoding(trace, expected, why):
    """Who decodes, decode step by decode step."""
    steps = [step for step in trace.steps if step.phase == "decode"]
    got = [decoding(step) for step in steps]
    wrong = next((step.index for step, a, b in zip(steps, got, expected, strict=False) if a != b), -1)
    assert got == expected, explain_failure(trace, wrong, f"decode steps of {expected}, got {got}", why)


def tight(impl):
    """Four blocks. Request 1 holds three of them between its chunks when request 0 needs a second one."""
    return run(impl, 1, [4, 12], [4, 2], [0, 1], limits(4, 4, budget=4) | {"enable_prefix_caching": False})


def phases(trace):
    """One letter a step: p for prefill, d for decode, m for mixed."""
    return "".join(step.phase[0] for step in trace.steps)


def stream(impl, patience):
    """One request that decodes, and a new one of five tokens before each of six steps; one fits into a prefill step."""
    return run(impl, patience, [5] * 7, [4] + [1] * 6, [0, 0, 1, 2, 3, 4, 5], limits(4, 32, budget=8))


@pytest.mark.points(4, part="bound", hint=BOUND)
def test_patience_of_one(impl):
    """While request 0 decodes, prefill and decode take turns; then the rest is prefill."""
    expect_phases(stream(impl, 1), "ppdpdpdppp", BOUND)


@pytest.mark.points(4, part="bound", hint=BOUND)
def test_patience_of_two(impl):
    """After two prefill steps request 0 has its turn."""
    expect_phases(stream(impl, 2), "pppdppdppd", BOUND)


@pytest.mark.points(3, part="bound", hint=LAZY)
def test_patience_that_is_never_used_up(impl):
    """Seven requests and a patience of nine: first all prefills, then all decodes."""
    expect_phases(stream(impl, 9), "pppppppddd", LAZY)


@pytest.mark.points(5, part="bound", hint=BOUND)
@pytest.mark.parametrize("patience", [1, 2, 3])
def test_nobody_stands_still_for_longer(impl, patience):
    """Random runs with room for all: never more than `patience` steps in a row without a decode while one is ready."""
    for seed in range(12):
        work = random_requests(seed)
        expect_bound(run_policy(impl.FairScheduler, patience, **work.arguments), patience)


@pytest.mark.points(5, part="bound", hint=CHUNKS)
def test_between_two_chunks(impl):
    """A prompt of 40 tokens in five chunks, and one that decodes: they take turns."""
    trace = run(impl, 1, [4, 40], [6, 6], [0, 1], limits(4, 32, budget=8))
    expect_phases(trace, "ppdpdpdpdpddddd", CHUNKS)
    chunks = [row.chunk for step in trace.steps for row in step.rows if row.seq_id == 1 and row.chunk]
    wanted = [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    assert chunks == wanted, explain_failure(trace, -1, f"chunks {wanted} of request 1, got {chunks}", CHUNKS)


@pytest.mark.points(5, part="pressure", hint=HOLDS)
def test_a_half_computed_prompt_makes_room(impl):
    """Request 1 gives up what it holds, and request 0 decodes on to its end: nobody is preempted, nobody is stuck."""
    trace = tight(impl)
    expect_phases(trace, "ppdddpppd", HOLDS)
    expect_decoding(trace, [[0], [0], [0], [1]], HOLDS)
    victims = [(step.index, victim.victim) for step in trace.steps for victim in step.preempted]
    assert victims == [], explain_failure(trace, 2, f"nobody preempted, got (step, victim) {victims}", HOLDS)


@pytest.mark.points(4, part="pressure", hint=ANEW)
def test_its_chunks_are_counted_anew(impl):
    """Chunk 1 of 3, then request 1 gives its blocks up; later chunks 1, 2 and 3 of 3."""
    trace = tight(impl)
    chunks = [row.chunk for step in trace.steps for row in step.rows if row.seq_id == 1 and row.chunk]
    wanted = [(1, 3), (1, 3), (2, 3), (3, 3)]
    assert chunks == wanted, explain_failure(trace, 5, f"chunks {wanted} of request 1, got {chunks}", ANEW)


@pytest.mark.points(4, part="count", hint=COUNT)
def test_nobody_was_running(impl):
    """The chunks of the first request made nobody wait, so the second one still has two prefill steps."""
    trace = run(impl, 2, [24, 5, 5, 5], [3, 1, 1, 1], [0, 3, 3, 3], limits(4, 32, budget=8))
    expect_phases(trace, "pppppdpd", COUNT)


@pytest.mark.points(3, part="count", hint=COUNT)
def test_every_turn_begins_anew(impl):
    """After a decode step, `patience` prefill steps may pass again: in a long stream both make progress."""
    trace = run(impl, 2, [5] * 12, [5] + [1] * 11, [0] * 12, limits(4, 64, budget=8))
    expect_phases(trace, "pppdppdppdppdppp", COUNT)


@pytest.mark.points(4, part="count", hint=ENGINE)
def test_two_engines_count_apart(impl):
    """Two runs that advance in turns decide as each does alone."""
    alone = phases(stream(impl, 2))
    others = []
    prompts = [prompt(5, i) for i in range(7)]

    def interleave(trace, i):
        if i == 1:  # in the middle of this run, another one takes place
            others.append(phases(stream(impl, 2)))

    params, arrivals = [tokens(4)] + [tokens(1)] * 6, [0, 0, 1, 2, 3, 4, 5]
    work = {"prompts": prompts, "sampling_params": params, "arrivals": arrivals, **limits(4, 32, budget=8)}
    trace = run_policy(impl.FairScheduler, 2, on_step=interleave, **work)
    assert others == [alone], f"alone the phases are {alone}, in the middle of another run {others[0]}"
    expect_phases(trace, alone, ENGINE)


@pytest.mark.points(5, part="plan", hint=WHY)
def test_the_step_says_why(impl):
    """Steps 3 and 6 decode because it is their turn; step 9 because nobody waits."""
    trace = stream(impl, 2)
    stops = {step.index: str(step.stop) for step in trace.steps if step.phase == "decode"}
    turn = "DECODE_TURN waited=2 patience=2"
    wanted = {3: turn, 6: turn, 9: "QUEUE_EMPTY"}
    at = next((i for i, stop in stops.items() if wanted.get(i) != stop), -1)
    assert stops == wanted, explain_failure(trace, at, f"these stops of decode steps: {wanted}, got {stops}", WHY)


@pytest.mark.points(5, part="plan", hint=ALL)
def test_everybody_gets_a_token(impl):
    """Three requests run when it is their turn: all three decode."""
    trace = run(impl, 1, [3, 3, 3, 8, 8], [4, 4, 4, 1, 1], [0, 0, 0, 1, 1], limits(4, 32, budget=9))
    expect_decoding(trace, [[0, 1, 2]] * 3, ALL)


@pytest.mark.points(4, part="plan", hint=ORDER)
def test_the_order_stays(impl):
    """A batch holds two of three: the first two decode until they are done, then the third."""
    trace = run(impl, 1, [3, 3, 3], [4, 4, 4], [0, 0, 0], limits(4, 32, seqs=2))
    expect_decoding(trace, [[0, 1]] * 3 + [[2]] * 3, ORDER)


@pytest.mark.points(5, part="plan", hint=SAME)
def test_great_patience_is_prefill_first(impl):
    """Patience without end decides as prefill_first does, step by step: in batches of two, and with little room."""
    works = [random_requests(seed, spare_blocks=seed % 3).arguments for seed in range(12)]
    pairs = {"prompts": [prompt(3, i) for i in range(5)], "sampling_params": tokens(3), **limits(4, 32, seqs=2)}
    for work in [pairs, *works]:
        mine = run_policy(impl.FairScheduler, 10**9, **work)
        theirs = simulate(**work)
        check_invariants(mine)
        at = compare(mine, theirs).first_difference
        assert at is None, explain_failure(mine, at, f"what prefill_first does: {theirs.explain(at)}", SAME)
