"""Assignment 4, hidden tests: random runs under pressure, no token lost, and the corners."""

import pytest

from nanoinfer import EngineConfig, simulate
from nanoinfer.course.grading import explain_failure, run_student
from nanoinfer.course.invariants import check_invariants
from nanoinfer.course.kits.reference import expect_steps, run_against_reference
from nanoinfer.course.kits.requests import limits, prompt, random_requests, sequence, tokens

RANDOM = "Compare your run with the real one: nanoinfer.compare(yours, theirs) shows the first step that differs."
KEPT = "A victim keeps its token_ids: only the KV is lost."
CLEAN = "Set num_scheduled_tokens, num_chunks and is_prefill of a victim back, and leave no block or sequence behind."
BATCH = "The batch stays at the front of running, those it has no room for behind it."
BOUND = "With the smallest pool that a request fits into, it still ends."
BOUNDARY = "With blocks of one token every decode needs a block."

PRESSED = [2, 4, 6, 8, 12, 22, 24, 30, 36, 38]


@pytest.mark.points(12, part="in the engine", hint=RANDOM, visibility="hidden")
@pytest.mark.parametrize("seed", PRESSED[:6])
def test_random_runs_under_pressure(impl, seed):
    """Random requests with shared prefixes in a small pool: every step equals the real one."""
    work = random_requests(seed, spare_blocks=seed % 3)
    run_against_reference({"scheduler_cls": impl.Scheduler}, "The real scheduler plans this step so.", **work.arguments)


@pytest.mark.points(8, part="recompute", hint=KEPT, visibility="hidden")
@pytest.mark.parametrize("seed", PRESSED)
def test_pressure_changes_no_token(impl, seed):
    """Random requests give the same tokens in a small pool and in a large one."""
    small, large = random_requests(seed, spare_blocks=seed % 3), random_requests(seed)
    trace = run_student(**small.arguments, scheduler_cls=impl.Scheduler)
    expected = [output["token_ids"] for output in simulate(**large.arguments).outputs]
    assert [output["token_ids"] for output in trace.outputs] == expected, explain_failure(
        trace, -1, f"outputs {expected}", KEPT
    )
    assert any(step.preempted for step in trace.steps), explain_failure(trace, -1, "a preemption", KEPT)


@pytest.mark.points(6, part="blocks", hint=CLEAN, visibility="hidden")
@pytest.mark.parametrize("seed", PRESSED[4:8])
def test_the_pool_adds_up(impl, seed):
    """After every step each block is free or held, and counted right; at the end all are free."""
    work = random_requests(seed, spare_blocks=0)
    trace = run_student(**work.arguments, scheduler_cls=impl.Scheduler)
    check_invariants(trace)
    free = sorted(trace.steps[-1].free_blocks)
    assert free == list(range(work.settings["num_kvcache_blocks"])), explain_failure(trace, -1, "all free", CLEAN)


@pytest.mark.points(5, part="decode", hint=BATCH, visibility="hidden")
def test_preemption_behind_a_full_batch(impl):
    """Batches of two, four running: the victim is the last of all, not the last of the batch."""
    trace = run_student(
        [prompt(3, i) for i in range(4)], tokens(4), scheduler_cls=impl.Scheduler, **limits(2, 8, seqs=2)
    )
    decodes = ["decode 0:3+1 1:3+1", "decode 0:4+1 1:4+1", "decode 0:5+1 1:5+1", "prefill 3:0+4", "decode 2:3+1 3:4+1"]
    expect_steps(trace, ["prefill 0:0+3 1:0+3", "prefill 2:0+3 3:0+3", *decodes], BATCH)
    queues = trace.steps[3].waiting, trace.steps[3].running
    assert queues == ([3], [0, 1, 2]), explain_failure(trace, 3, "waiting [3], running [0, 1, 2]", BATCH)
    assert str(trace.steps[3].decode_stop) == "MAX_SEQS scheduled=2 limit=2"


@pytest.mark.points(4, part="victims", hint=CLEAN, visibility="hidden")
def test_a_victim_by_hand(impl):
    """What preempt leaves of a sequence: its tokens, and nothing that speaks of blocks."""
    scheduler = impl.Scheduler(EngineConfig(**limits(4, 8)))
    seq = sequence(prompt(9))
    scheduler.add(seq)
    scheduler.postprocess(scheduler.schedule(), [7])
    scheduler.running.remove(seq)
    record = scheduler.preempt(seq, seq)
    assert (record.victim, record.on_behalf_of, record.rule, record.blocks, record.tokens) == (0, 0, "self", 3, 9)
    assert seq.token_ids == [*prompt(9), 7], KEPT
    left = (seq.block_table, seq.num_computed_tokens, seq.num_scheduled_tokens, seq.num_chunks, seq.is_prefill)
    assert left == ([], 0, 0, 0, True), CLEAN
    assert list(scheduler.waiting) == [seq]
    assert scheduler.block_manager.can_allocate(seq) == 2, "its two full blocks can still be found"
    scheduler.postprocess(scheduler.schedule(), [8])
    assert (seq.num_computed_tokens, seq.num_scheduled_tokens, seq.is_prefill) == (10, 0, False), CLEAN
    while not scheduler.is_finished():
        scheduler.postprocess(scheduler.schedule(), [9])
    assert (seq.num_completion_tokens, seq.is_finished, scheduler.sequences) == (8, True, {}), CLEAN


@pytest.mark.points(3, part="decode", hint=BOUNDARY, visibility="hidden")
def test_blocks_of_one_token(impl):
    """Every decode of every sequence needs a block: the real scheduler's victims, one after the other."""
    why = "With blocks of one token there are as many blocks as tokens."
    requests = {"prompts": [prompt(3, i) for i in range(3)], "sampling_params": tokens(5)}
    run_against_reference({"scheduler_cls": impl.Scheduler}, why, **requests, **limits(1, 10))


@pytest.mark.points(2, part="recompute", hint=BOUND, visibility="hidden")
def test_the_smallest_pool(impl):
    """Each request alone fits exactly: they take turns, and all of them end."""
    trace = run_student([prompt(6, i) for i in range(3)], tokens(7), scheduler_cls=impl.Scheduler, **limits(4, 3))
    assert [len(output["token_ids"]) for output in trace.outputs] == [7, 7, 7], explain_failure(trace, -1, BOUND, BOUND)
