"""Assignment 3, hidden tests: random runs against the real scheduler, the reasons to stop, the corners."""

import pytest

from nanoinfer import EngineConfig, SamplingParams
from nanoinfer.core.sequence import SequenceStatus
from nanoinfer.course.grading import explain_failure, run_student
from nanoinfer.course.kits.reference import expect_steps, run_against_reference
from nanoinfer.course.kits.requests import limits, prompt, random_requests, sequence, tokens

RANDOM = "Compare your run with the real one: nanoinfer.compare(yours, theirs) shows the first step that differs."
REASON = "Test the five reasons in the order of the docstring, and give the two numbers that were compared."
WHOLE = "Reserve the whole table with the first chunk, not block by block."
WRITTEN = "Call hash_blocks after the step and before the counters advance: earlier the KV is not written."
ORDER = "Test EOS, then STOP, then LENGTH."
MODEL = "A sequence also ends when it has max_model_len tokens in all."
COUNTERS = (
    "After a step count its tokens as computed, none as scheduled; who is done is in no queue and not in sequences."
)
SAME = "Chunks and batches change when a token comes, never which token it is."


@pytest.mark.points(8, part="in the engine", hint=RANDOM, visibility="hidden")
@pytest.mark.parametrize("seed", [41, 42, 43, 44, 45, 46])
def test_random_runs(impl, seed):
    """Random requests with shared prefixes, odd budgets and late arrivals: every step equals the real one."""
    work = random_requests(seed)
    run_against_reference({"scheduler_cls": impl.Scheduler}, "The real scheduler plans this step so.", **work.arguments)


@pytest.mark.points(5, part="blocks", hint=RANDOM, visibility="hidden")
@pytest.mark.parametrize("seed", [0, 1, 5, 16, 32])
def test_random_runs_in_a_small_pool(impl, seed):
    """Random requests that have to wait for blocks, though nobody is preempted."""
    work = random_requests(seed, spare_blocks=seed % 3)
    run_against_reference({"scheduler_cls": impl.Scheduler}, "The real scheduler plans this step so.", **work.arguments)


@pytest.mark.points(7, part="limits", hint=REASON, visibility="hidden")
@pytest.mark.parametrize(
    ("lengths", "limit", "expected"),
    [
        ([5], limits(4, 8), ["QUEUE_EMPTY", "QUEUE_EMPTY"]),
        ([3, 3, 3], limits(4, 8, seqs=2), ["MAX_SEQS scheduled=2 limit=2"]),
        ([3, 5, 3], limits(4, 8, budget=8, seqs=2), ["MAX_SEQS scheduled=2 limit=2"]),
        ([3, 5, 3], limits(4, 8, budget=8), ["TOKEN_BUDGET batched=8 limit=8"]),
        ([4, 14], limits(4, 4, budget=16), ["NO_BLOCKS needed=4 free=3", "NO_BLOCKS needed=4 free=3"]),
        ([4, 14], limits(4, 8, budget=16), ["CHUNK_NOT_ALLOWED needed=14 remaining=12", "QUEUE_EMPTY"]),
        ([4, 14], limits(4, 4, budget=4), ["TOKEN_BUDGET batched=4 limit=4", "NO_BLOCKS needed=4 free=3"]),
    ],
)
def test_why_admission_ended(impl, lengths, limit, expected):
    """Each reason to stop, with the numbers compared; where two hold, the first of the docstring counts."""
    prompts = [prompt(n, i) for i, n in enumerate(lengths)]
    trace = run_student(prompts, tokens(2), scheduler_cls=impl.Scheduler, **limit)
    for i, words in enumerate(expected):
        assert str(trace.steps[i].stop) == words, explain_failure(trace, i, f"stop {words}", REASON)


@pytest.mark.points(3, part="limits", hint="decode_stop says why the decode loop ended.", visibility="hidden")
def test_why_decode_ended(impl):
    """A prefill batch, a full decode batch, and one that holds all."""
    trace = run_student([prompt(3)] * 3, tokens(2), scheduler_cls=impl.Scheduler, **limits(4, 8, seqs=2))
    got = [str(step.decode_stop) for step in trace.steps]
    assert got == ["PHASE_EXCLUSIVE", "PHASE_EXCLUSIVE", "MAX_SEQS scheduled=2 limit=2", "RUNNING_EMPTY"]


@pytest.mark.points(3, part="blocks", hint=WHOLE, visibility="hidden")
def test_the_whole_table_is_reserved_at_once(impl):
    """Ten tokens in chunks of four: three blocks are held after the first chunk."""
    trace = run_student([prompt(10)], tokens(1), scheduler_cls=impl.Scheduler, **limits(4, 3, budget=4))
    assert trace.steps[0].rows[0].block_table == [0, 1, 2], explain_failure(trace, 0, "table [0, 1, 2]", WHOLE)


@pytest.mark.points(4, part="blocks", hint=WRITTEN, visibility="hidden")
def test_twins_in_one_step(impl):
    """Two equal prompts in one batch share nothing; a third one finds the blocks that were registered last."""
    classes = {"scheduler_cls": impl.Scheduler}
    trace = run_student([prompt(9)] * 3, tokens(2), arrivals=[0, 0, 1], **classes, **limits(4, 8))
    expect_steps(trace, ["prefill 0:0+9 1:0+9", "prefill 2:8+1"], WRITTEN)
    tables = [row.block_table for step in trace.steps[:2] for row in step.rows]
    assert tables == [[0, 1, 2], [3, 4, 5], [3, 4, 6]], explain_failure(trace, 1, "[0,1,2] [3,4,5] [3,4,6]", WRITTEN)


@pytest.mark.points(4, part="stopping", hint=ORDER, visibility="hidden")
def test_reasons_to_finish(impl):
    """An end-of-sequence token as the first one, ignored, as a stop id, and on the last allowed place."""
    params = [
        SamplingParams(max_tokens=5),
        SamplingParams(max_tokens=2, ignore_eos=True),
        SamplingParams(max_tokens=5, ignore_eos=True, stop_token_ids=[7]),
        SamplingParams(max_tokens=1, stop_token_ids=[7]),
    ]
    prompts = [[1, 7, 2, i] for i in range(4)]
    trace = run_student(prompts, params, token_fn=lambda ids: 7, eos=7, scheduler_cls=impl.Scheduler, **limits(4, 8))
    got = [(output["finish_reason"], len(output["token_ids"])) for output in trace.outputs]
    assert got == [("eos", 1), ("length", 2), ("stop", 1), ("eos", 1)], explain_failure(trace, -1, "eos first", ORDER)


@pytest.mark.points(2, part="stopping", hint=MODEL, visibility="hidden")
def test_the_length_limit_of_the_model(impl):
    """14 tokens and 10 more asked for, where the model has 16 positions: two tokens come."""
    trace = run_student([prompt(14)], tokens(10), max_model_len=16, scheduler_cls=impl.Scheduler, **limits(4, 4))
    output = trace.outputs[0]
    assert (len(output["token_ids"]), output["finish_reason"]) == (2, "length"), MODEL


@pytest.mark.points(2, part="chunks", hint=SAME, visibility="hidden")
@pytest.mark.parametrize("budget", [2, 5])
def test_outputs_do_not_depend_on_the_budget(impl, budget):
    """The same requests with a small and with a large budget give the same tokens."""
    work = random_requests(50)
    small, large = (
        run_student(**work.arguments | {"max_num_batched_tokens": n}, scheduler_cls=impl.Scheduler)
        for n in (budget, 200)
    )
    assert [o["token_ids"] for o in small.outputs] == [o["token_ids"] for o in large.outputs], SAME


@pytest.mark.points(2, part="stopping", hint=COUNTERS, visibility="hidden")
def test_a_request_by_hand(impl):
    """What postprocess leaves of a sequence after its first and after its last token."""
    scheduler, seq = impl.Scheduler(EngineConfig(**limits(4, 8))), sequence(prompt(9), max_tokens=2)
    scheduler.add(seq)
    scheduler.postprocess(scheduler.schedule(), [7])
    assert (seq.num_computed_tokens, seq.num_scheduled_tokens, seq.is_prefill) == (9, 0, False), COUNTERS
    assert seq.status is SequenceStatus.RUNNING, COUNTERS
    scheduler.postprocess(scheduler.schedule(), [8])
    assert seq.token_ids == [*prompt(9), 7, 8]
    assert (scheduler.sequences, scheduler.is_finished(), seq.is_finished) == ({}, True, True), COUNTERS
