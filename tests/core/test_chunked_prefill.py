"""Chunks, budgets and capacity: what one step may hold and what never fits."""

import pytest
from kit.helpers import all_free, config, limits, make_core, params, prompt, run_all, sequences, short

from nanoinfer import EngineConfig, SamplingParams, Scheduler, Sequence, simulate


def test_cached_and_scheduled_never_pass_the_end():
    """B29: nine tokens of which eight are cached: one is scheduled."""
    trace = simulate([prompt(9)] * 2, params(1), arrivals=[0, 9], **limits(4, 32))
    assert [(r.num_cached, r.num_scheduled) for r in trace.steps[1].rows] == [(8, 1)]


@pytest.mark.parametrize("budget", [3, 5, 8, 64])
def test_a_partly_cached_prompt_is_chunked_from_its_hits_on(budget):
    """B29: cached + scheduled <= length, for chunks as well."""
    trace = simulate([prompt(9), [*prompt(8), *prompt(10, 1)]], params(1), arrivals=[0, 99], **limits(4, 32, B=budget))
    second = [step.rows[0] for step in trace.steps if step.rows[0].seq_id == 1]
    assert second[0].num_computed == 8
    assert sum(row.num_scheduled for row in second) == 10
    assert all(row.num_computed + row.num_scheduled <= 18 for row in second)
    assert [row.num_computed for row in second] == [8 + i * budget for i in range(len(second))]


def test_only_the_first_sequence_of_a_batch_is_cut():
    """B30: under 8 tokens, A(10) is cut; B(5) then fits whole and C(7) waits for a batch of its own."""
    trace = simulate([prompt(n, i) for i, n in enumerate((10, 5, 7))], params(2), **limits(4, 16, B=8))
    assert [short(step) for step in trace.steps[:3]] == [
        "0:0+8@[0, 1, 2]",
        "0:8+2@[0, 1, 2] 1:0+5@[3, 4]",
        "2:0+7@[5, 6]",
    ]
    assert [str(step.stop) for step in trace.steps[:3]] == [
        "TOKEN_BUDGET batched=8 limit=8",
        "CHUNK_NOT_ALLOWED needed=7 remaining=1",
        "QUEUE_EMPTY",
    ]


def test_the_mixed_policy_may_cut_any_sequence():
    """B30 is a rule of the default policy: under "mixed", C gets the tokens that are left."""
    trace = simulate([prompt(n, i) for i, n in enumerate((6, 7, 5))], params(2), policy="mixed", **limits(4, 32, B=16))
    assert [(row.seq_id, row.num_scheduled) for row in trace.steps[0].rows] == [(0, 6), (1, 7), (2, 3)]
    assert str(trace.steps[0].stop) == "QUEUE_EMPTY"


def test_a_budget_that_is_met_exactly_ends_the_batch_without_an_empty_row():
    """B31: A(8) fills a budget of 8; B(3) goes into the next step alone."""
    trace = simulate([prompt(8), prompt(3, 1)], params(1), **limits(4, 8, B=8))
    assert [[row.seq_id for row in step.rows] for step in trace.steps] == [[0], [1]]
    assert str(trace.steps[0].stop) == "TOKEN_BUDGET batched=8 limit=8"


def test_the_sample_of_a_middle_chunk_is_dropped():
    """B32: after step 0 A has no completion, whatever the runner sampled."""
    scheduler = Scheduler(config(4, 16, B=8))
    for seq in sequences((10, 5, 7), 4):
        scheduler.add(seq)
    first = scheduler.sequences[0]
    plan = scheduler.schedule()
    scheduler.postprocess(plan, [4242])
    assert (first.num_completion_tokens, first.num_computed_tokens, plan.rows[0].token_id) == (0, 8, None)
    assert scheduler.waiting[0] is first
    plan = scheduler.schedule()
    scheduler.postprocess(plan, [11, 12])
    assert first.completion_token_ids == [11]
    assert [row.token_id for row in plan.rows] == [11, 12]


def test_the_whole_table_is_reserved_before_the_first_chunk():
    """B34: three blocks are held after four of ten tokens; nobody can take the rest away."""
    trace = simulate([prompt(10)], params(1), **limits(4, 3, B=4))
    assert trace.state(0).block_tables == {0: [0, 1, 2]}
    assert [short(step) for step in trace.steps] == [f"0:{c}+{n}@[0, 1, 2]" for c, n in ((0, 4), (4, 4), (8, 2))]


def test_a_prompt_that_needs_more_blocks_than_there_are_is_refused_at_submission():
    """B34: needs 3, has 2."""
    with pytest.raises(ValueError, match=r"NEVER_FITS.*need 3 blocks.*have 2"):
        simulate([prompt(10)], params(1), **limits(4, 2, B=4))


def test_one_prompt_that_never_fits_refuses_the_batch_and_queues_nothing():
    """B35: P(20) needs 5 blocks of 4, the pool has 4; P(2) would fit."""
    with pytest.raises(ValueError, match=r"need 5 blocks.*have 4"):
        simulate([prompt(2), prompt(20, 1)], params(1), **limits(4, 4))
    scheduler = Scheduler(config(4, 4))
    with pytest.raises(ValueError, match=r"need 5 blocks.*have 4"):
        scheduler.add(Sequence(0, prompt(20), params(1), 4))
    assert all_free(scheduler)
    assert not scheduler.sequences


@pytest.mark.parametrize(
    ("n", "max_tokens", "nb", "fits"),
    [(8, 1, 2, True), (9, 1, 2, False), (5, 4, 2, True), (5, 5, 2, False), (1, 8, 2, True), (1, 9, 2, False)],
)
def test_a_request_fits_when_all_but_its_last_token_have_a_slot(n, max_tokens, nb, fits):
    """B35: min(prompt + max_tokens, max_model_len) - 1 <= num_blocks * block_size."""
    if fits:
        assert len(simulate([prompt(n)], params(max_tokens), **limits(4, nb)).outputs[0]["token_ids"]) == max_tokens
    else:
        with pytest.raises(ValueError, match="NEVER_FITS"):
            simulate([prompt(n)], params(max_tokens), **limits(4, nb))


def test_max_model_len_counts_in_the_fit():
    """A request that is cut at 9 tokens needs 8 slots, however many tokens it asks for."""
    trace = simulate([prompt(5)], params(1000), max_model_len=9, **limits(4, 2))
    assert (len(trace.outputs[0]["token_ids"]), trace.outputs[0]["finish_reason"]) == (4, "length")


def test_a_preempted_sequence_longer_than_the_budget_comes_back_in_chunks():
    """B37: it is not mistaken for a prompt that is too long."""
    trace = simulate([prompt(8), prompt(8, 1)], params(5), **limits(4, 5, B=6))
    per_seq = {
        i: [(r.num_computed, r.num_scheduled) for s in trace.steps for r in s.rows if r.seq_id == i] for i in (0, 1)
    }
    assert per_seq[0][:2] == per_seq[1][:2] == [(0, 6), (6, 2)]
    victim = next(p for step in trace.steps for p in step.preempted)
    assert (victim.victim, victim.on_behalf_of, victim.rule) == (1, 1, "self")
    assert per_seq[1][2] == (8, 1)
    assert [len(output["token_ids"]) for output in trace.outputs] == [5, 5]


def test_a_preempted_sequence_is_chunked_again_when_its_blocks_are_gone():
    """B37 without a prefix cache: nine tokens come back as 6 and 3."""
    trace = simulate([prompt(8), prompt(8, 1)], params(5), enable_prefix_caching=False, **limits(4, 5, B=6))
    again = [(r.num_computed, r.num_scheduled, r.chunk) for s in trace.steps for r in s.rows if r.seq_id == 1][2:4]
    assert again == [(0, 6, (1, 2)), (6, 3, (2, 2))]
    assert [len(output["token_ids"]) for output in trace.outputs] == [5, 5]


@pytest.mark.parametrize("n", [16, 17])
def test_a_prompt_of_max_model_len_or_more_is_refused(n):
    """B38: no room for a new token."""
    with pytest.raises(ValueError, match=rf"TOO_LONG.*{n} tokens.*max_model_len is 16"):
        simulate([prompt(n)], params(1), max_model_len=16, **limits(4, 32))


def test_generation_stops_at_max_model_len():
    """B38: 14 prompt tokens leave two; position 16 is never used."""
    trace = simulate([prompt(14)], params(10), max_model_len=16, **limits(4, 32))
    assert (len(trace.outputs[0]["token_ids"]), trace.outputs[0]["finish_reason"]) == (2, "length")
    assert max(r.num_computed + r.num_scheduled for s in trace.steps for r in s.rows) == 15


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 0},
        {"max_num_batched_tokens": -1},
        {"max_num_seqs": 0},
        {"max_num_seqs": -3},
        {"num_kvcache_blocks": 0},
        {"num_kvcache_blocks": -2},
        {"kvcache_block_size": 0},
        {"kvcache_block_size": -4},
        {"max_model_len": 1},
        {"max_model_len": 0},
        {"tensor_parallel_size": 0},
        {"gpu_memory_utilization": 0},
        {"gpu_memory_utilization": 1.5},
        {"gpu_memory_utilization": float("nan")},
        {"kvcache_block_size": 4.0},
        {"max_num_seqs": True},
        {"num_kvcache_blocks": None},
        {"max_num_batched_tokens": "64"},
        {"dtype": "float16x"},
        {"load_format": "pickle"},
        {"enable_prefix_caching": "no"},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_refused_at_construction(settings):
    """B39: the message names the field and the value."""
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=name) as error:
        EngineConfig(**settings)
    assert str(value) in str(error.value)


def test_an_unknown_setting_names_the_nearest_known_one():
    with pytest.raises(TypeError, match=r"max_num_seq.*did you mean 'max_num_seqs'"):
        EngineConfig(max_num_seq=4)
    with pytest.raises(TypeError, match=r"did you mean 'kvcache_block_size'"):
        simulate([prompt(2)], params(1), block_size=4)


def test_many_short_prompts_end_and_every_step_returns_a_list():
    """B40: 90 prompts of two tokens, four at a time."""
    core = make_core(config(4, 64, M=4))
    for tag in range(90):
        core.add(prompt(2, tag), params(3))
    finished = []
    for _ in range(1000):
        out = core.step()
        assert isinstance(out, list)
        finished += out
        if core.is_finished():
            break
    assert core.step() == []
    assert sorted(seq.seq_id for seq in finished) == list(range(90))


def test_a_decode_batch_larger_than_the_token_budget_runs():
    """B41: the budget caps prefill; the default policy's decode batch is capped by max_num_seqs."""
    trace = simulate([prompt(2, tag) for tag in range(4)], params(3), **limits(4, 16, B=2))
    assert [len(output["token_ids"]) for output in trace.outputs] == [3] * 4
    assert {step.num_batched_tokens for step in trace.steps if step.phase == "decode"} == {4}
    assert all(step.num_batched_tokens <= 2 for step in trace.steps if step.phase == "prefill")


def test_the_mixed_policy_keeps_every_step_under_the_token_budget():
    """B41: decode and prefill rows together."""
    trace = simulate([prompt(2, tag) for tag in range(4)], params(3), policy="mixed", **limits(4, 16, B=2))
    assert [len(output["token_ids"]) for output in trace.outputs] == [3] * 4
    assert all(step.num_batched_tokens <= 2 for step in trace.steps)
    assert str(trace.steps[1].stop) == "TOKEN_BUDGET batched=2 limit=2"


def test_chunk_numbers_count_from_one_to_the_number_of_chunks():
    trace = simulate([prompt(23)], params(2), **limits(4, 8, B=5))
    assert [step.rows[0].chunk for step in trace.steps] == [(i, 5) for i in range(1, 6)] + [None]


def test_a_scheduler_without_a_model_wants_a_pool_size():
    with pytest.raises(ValueError, match="num_kvcache_blocks"):
        Scheduler(EngineConfig())


def test_the_simulator_sizes_a_pool_that_never_preempts():
    trace = simulate(
        [prompt(n, n) for n in (3, 9, 30)], SamplingParams(max_tokens=20, ignore_eos=True), kvcache_block_size=4
    )
    assert not any(step.preempted for step in trace.steps)
    assert all(step.stop.reason != "NO_BLOCKS" for step in trace.steps)
    assert all(len(output["token_ids"]) == 20 for output in trace.outputs)


def test_scheduler_add_refuses_what_add_request_refuses():
    scheduler = Scheduler(config(4, 4, max_model_len=12, vocab_size=100))
    bad = {
        "empty": Sequence(0, [], params(1), 4),
        "TOO_LONG": Sequence(0, [1] * 12, params(1), 4),
        "prompt token ids must be in the vocabulary": Sequence(0, [1, 100], params(1), 4),
        "stop_token_ids": Sequence(0, [1], params(1, stop_token_ids=[100]), 4),
        "block_size": Sequence(0, [1], params(1), 8),
    }
    for message, seq in bad.items():
        with pytest.raises(ValueError, match=message):
            scheduler.add(seq)
    assert scheduler.is_finished()
    scheduler.add(Sequence(0, [1], params(1), 4))
    with pytest.raises(ValueError, match="seq_id 0"):
        scheduler.add(Sequence(0, [2], params(1), 4))
    assert len(scheduler.waiting) == 1


@pytest.mark.parametrize(
    ("lengths", "limits_", "expected"),
    [
        ((4, 4), limits(4, 8, B=8, M=2), "QUEUE_EMPTY"),
        ((4, 4, 4), limits(4, 8, B=8, M=2), "MAX_SEQS scheduled=2 limit=2"),
        ((4, 4, 9), limits(4, 3, B=8, M=3), "TOKEN_BUDGET batched=8 limit=8"),
        ((4, 4, 9), limits(4, 4, B=9, M=3), "NO_BLOCKS needed=3 free=2"),
        ((4, 4, 9), limits(4, 5, B=9, M=3), "CHUNK_NOT_ALLOWED needed=9 remaining=1"),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else None,
)
def test_reasons_are_tested_in_the_order_of_the_catalogue(lengths, limits_, expected):
    """Each run meets its reason and the next one at once; the first is told."""
    trace = simulate([prompt(n, i) for i, n in enumerate(lengths)], params(1), **limits_)
    assert str(trace.steps[0].stop) == expected


def test_the_token_after_the_last_chunk_is_the_first_completion():
    core = make_core(config(4, 8, B=4))
    core.add(prompt(10), params(3))
    (seq,) = run_all(core)
    assert len(seq.completion_token_ids) == 3
    assert [len(plan.rows) for plan in core.runner.plans] == [1] * 5
