"""Where a block begins and ends, and that the length has one source of truth."""

import json
import pickle

import numpy as np
import pytest
from kit.helpers import FunctionRunner, all_free, config, limits, make_core, params, prompt, rows, run_all, sequences

from nanoinfer import BlockManager, Scheduler, Sequence, simulate


def test_a_block_is_taken_by_the_first_decode_that_crosses_the_boundary():
    """B01: remainder 1, not 0: the sampled token is appended before the next schedule()."""
    trace = simulate([prompt(4)], params(6), **limits(4, 8))
    assert [len(step.rows[0].block_table) for step in trace.steps] == [1, 2, 2, 2, 2, 3]
    assert [e.step for e in trace.events if e.kind == "allocate"] == [0, 1, 5]


def test_a_block_that_is_not_there_is_refused_by_name():
    blocks = BlockManager(num_blocks=1, block_size=2)
    seq = Sequence(7, [1, 2], params(3), block_size=2)
    blocks.allocate(seq, 0)
    seq.append_token(3)
    with pytest.raises(RuntimeError, match="sequence 7 needs a block for token 2, and none is free"):
        blocks.may_append(seq)
    assert len(seq.block_table) == 1


@pytest.mark.parametrize("bs", [2, 3, 4, 7])
def test_a_decode_takes_a_block_when_the_length_leaves_remainder_one(bs):
    """B01, for other block sizes and every starting remainder."""
    for n in range(1, 2 * bs + 2):
        trace = simulate([prompt(n)], params(3 * bs), **limits(bs, 16))
        for step in trace.steps[1:]:
            length = step.rows[0].num_computed + 1
            grew = len(step.rows[0].block_table) > -(-(length - 1) // bs)
            assert grew == (length % bs == 1), f"prompt {n}, length {length}"


def test_every_decode_takes_a_block_when_a_block_holds_one_token():
    """B01 at block size 1, where the remainder is always 0."""
    trace = simulate([prompt(3)], params(4), **limits(1, 8))
    assert [len(step.rows[0].block_table) for step in trace.steps] == [3, 4, 5, 6]


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 9])
def test_the_last_sampled_token_never_takes_a_block(n):
    """A request needs KV for all its tokens but the last, so the smallest pool that is accepted is enough."""
    needed = -(-(n + 5 - 1) // 4)
    trace = simulate([prompt(n)], params(5), **limits(4, needed))
    assert max(len(step.rows[0].block_table) for step in trace.steps) == needed
    assert not any(step.preempted for step in trace.steps)


def test_a_decode_computes_the_position_before_the_length():
    """B04: three tokens prefilled, one sampled: position 3, context length 4, slot 3."""
    scheduler = Scheduler(config(4, 4))
    (seq,) = sequences([3], 4)
    scheduler.add(seq)
    scheduler.postprocess(scheduler.schedule(), [77])
    row = scheduler.schedule().rows[0]
    assert (row.num_computed, row.num_scheduled, row.slots) == (3, 1, [row.block_table[0] * 4 + 3])
    assert (len(seq), seq.last_token) == (4, 77)


def test_slots_follow_the_block_table_across_blocks():
    """Positions 0 to 8 in blocks that are not neighbours."""
    trace = simulate([prompt(9), prompt(5, 1), prompt(9, 2)], params(1), arrivals=[0, 1, 2], **limits(4, 4))
    row = trace.steps[2].rows[0]
    size, table = 4, row.block_table
    assert table != sorted(table), "the pool was used before, so its order is mixed"
    assert row.slots == [table[p // size] * size + p % size for p in range(9)]


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_exactly_max_tokens_are_generated(max_tokens):
    """B05: neither an endless loop nor one token short."""
    trace = simulate([prompt(2)], params(max_tokens), **limits(4, 8))
    assert len(trace.outputs[0]["token_ids"]) == max_tokens
    assert trace.outputs[0]["finish_reason"] == "length"


def test_sequence_length_is_derived_from_its_tokens():
    """B05: appending is the only way to grow, and every figure follows."""
    seq = Sequence(0, prompt(4), params(4), 4)
    seq.append_token(9)
    assert (len(seq), seq.num_tokens, seq.num_completion_tokens, seq.num_blocks, seq.last_token) == (5, 5, 1, 2, 9)
    assert seq.completion_token_ids == [9]
    assert seq.prompt_token_ids == prompt(4)


@pytest.mark.parametrize("scalar", [np.int64, np.int32, np.uint16, lambda token: np.array(token)])
def test_sampled_numpy_scalars_are_stored_as_plain_ints(scalar):
    """B06: a block filled during decode hashes like one of plain ints, and the output is JSON."""
    plain = make_core(config(4, 8), FunctionRunner(lambda ids: 40 + len(ids)))
    typed = make_core(config(4, 8), FunctionRunner(lambda ids: scalar(40 + len(ids))))
    for core in (plain, typed):
        core.start_trace()
        core.add(prompt(3), params(3))
    (expected,), (got,) = run_all(plain), run_all(typed)
    assert [type(token) for token in got.token_ids] == [int] * 6
    assert got.token_ids == expected.token_ids
    hashes = [set(core.scheduler.block_manager.hash_to_block_id) for core in (plain, typed)]
    assert hashes[0] == hashes[1] != set()
    row_tokens = [step.rows[0].token_id for step in typed.trace.steps]
    assert json.loads(json.dumps(row_tokens)) == got.completion_token_ids


def test_a_chunk_ends_where_its_own_tokens_end():
    """B28: ten tokens under a budget of 8: keys up to 8, then up to 10."""
    trace = simulate([prompt(10)], params(1), **limits(4, 4, B=8))
    assert [rows(step) for step in trace.steps] == [[(0, 0, 8, [0, 1, 2])], [(0, 8, 2, [0, 1, 2])]]
    assert [step.rows[0].slots for step in trace.steps] == [list(range(8)), [8, 9]]


def test_a_preempted_sequence_survives_pickling_with_all_its_tokens():
    """B44: its re-prefill needs every id, not only the last."""
    core = make_core(config(4, 5))
    for tag in (0, 1):
        core.add(prompt(8, tag), params(5))
    core.step()
    core.step()
    victim = core.scheduler.waiting[0]
    assert (victim.seq_id, victim.num_preemptions, victim.num_completion_tokens) == (1, 1, 1)
    copy = pickle.loads(pickle.dumps(victim))
    assert copy.token_ids == victim.token_ids
    assert copy.token_ids[:8] == prompt(8, 1)
    assert (copy.is_prefill, copy.block_table, copy.num_computed_tokens) == (True, [], 0)
    run_all(core)
    assert all_free(core.scheduler)
