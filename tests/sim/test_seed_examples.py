"""Worked examples that explanations of this scheduler use, with their numbers."""

from itertools import pairwise

from kit.helpers import limits, params, prompt, rows, sequences, step_by_hand

from nanoinfer import EngineConfig, Scheduler, simulate


def test_three_prompts_under_a_budget_of_16_make_a_batch_of_two():
    """B30: A(6) and B(7) leave 3 tokens; C(5) is not cut to fill them."""
    trace = simulate([prompt(n, i) for i, n in enumerate((6, 7, 5))], params(3), **limits(4, 32, B=16, M=3))
    first = trace.steps[0]
    assert [(row.seq_id, row.num_scheduled, row.chunk) for row in first.rows] == [(0, 6, (1, 1)), (1, 7, (1, 1))]
    assert (first.phase, first.waiting, first.running) == ("prefill", [2], [0, 1])
    assert str(first.stop) == "CHUNK_NOT_ALLOWED needed=5 remaining=3"
    assert str(first.decode_stop) == "PHASE_EXCLUSIVE"
    assert [row.seq_id for row in trace.steps[1].rows] == [2]


def test_a_prompt_of_500_000_tokens_reserves_1954_blocks_and_takes_31_passes():
    trace = simulate(
        [range(500_000)],
        params(1),
        max_model_len=500_001,
        num_kvcache_blocks=1954,
        kvcache_block_size=256,
        max_num_batched_tokens=16_384,
    )
    assert len(trace.state(0).block_tables[0]) == 1954
    assert trace.steps[0].free_blocks == []
    assert [step.num_batched_tokens for step in trace.steps] == [16_384] * 30 + [8_480]
    assert [step.rows[0].chunk for step in trace.steps] == [(i, 31) for i in range(1, 32)]
    assert all(step.waiting == [0] and step.running == [] for step in trace.steps[:-1])
    assert len(trace.outputs[0]["token_ids"]) == 1


def test_a_500_000_token_prompt_fits_no_default_engine():
    """The default max_model_len is 4,096."""
    assert EngineConfig().max_model_len == 4096


def test_one_decode_step_advances_everybody_who_runs():
    """B, A and C in this order: one batched pass, one token each, and the order stays."""
    trace = simulate([prompt(n, i) for i, n in enumerate((7, 6, 5))], params(4), **limits(4, 32, M=3))
    decodes = [step for step in trace.steps if step.phase == "decode"]
    assert len(decodes) == 3
    for step in decodes:
        assert [(row.seq_id, row.num_scheduled) for row in step.rows] == [(0, 1), (1, 1), (2, 1)]
    assert [step.running for step in decodes] == [[0, 1, 2], [0, 1, 2], []]
    for before, after in pairwise(decodes):
        assert [row.num_computed + 1 for row in before.rows] == [row.num_computed for row in after.rows]


def test_running_keeps_its_order_when_the_batch_is_smaller_than_the_queue():
    """[A, B, C, D] with three taken comes back as [A, B, C, D], not as [C, B, A, D]."""
    scheduler = Scheduler(EngineConfig(**limits(4, 32, M=4)))
    for seq in sequences((3, 3, 3, 3), 4):
        scheduler.add(seq)
    assert step_by_hand(scheduler).phase == "prefill"
    scheduler.max_num_seqs = 3
    plan = step_by_hand(scheduler)
    assert [row.seq_id for row in plan.rows] == [0, 1, 2]
    assert [seq.seq_id for seq in scheduler.running] == [0, 1, 2, 3]


def test_running_of_four_keeps_its_order_through_the_public_api():
    trace = simulate([prompt(3, i) for i in range(4)], params(3), **limits(4, 32, M=3))
    first_decode = next(step for step in trace.steps if step.phase == "decode")
    assert first_decode.index == 2, "three prefills in one batch, the fourth in the next"
    assert [row.seq_id for row in first_decode.rows] == [0, 1, 2]
    assert first_decode.running == [0, 1, 2, 3]
    assert str(first_decode.decode_stop) == "MAX_SEQS scheduled=3 limit=3"


def test_two_prompts_with_512_equal_tokens_hold_their_first_two_blocks_together():
    """Default block size 256; the second prompt arrives when the first one's blocks are written."""
    shared = prompt(512)
    trace = simulate([[*shared, 9001], [*shared, 9002]], params(8), arrivals=[0, 1])
    first, second = trace.steps[0].rows[0], trace.steps[1].rows[0]
    assert first.block_table[:2] == second.block_table[:2]
    assert first.block_table[2] != second.block_table[2]
    assert (second.num_cached, second.num_computed, second.num_scheduled) == (512, 512, 1)
    state = trace.state(1)
    assert [state.ref_counts[block] for block in second.block_table] == [2, 2, 1]


def test_the_input_of_a_decode_is_the_token_sampled_before():
    """y1 comes from the prefill; the first decode computes y1's own KV and samples y2."""
    trace = simulate([prompt(3)], params(3), **limits(4, 8))
    assert [rows(step) for step in trace.steps] == [
        [(0, 0, 3, [0])],
        [(0, 3, 1, [0])],
        [(0, 4, 1, [0, 1])],
    ]
    assert [step.rows[0].token_id for step in trace.steps] == trace.outputs[0]["token_ids"]
