"""Who loses its blocks, what that costs, and in which order everybody goes on."""

import pytest
from kit.helpers import (
    POLICIES,
    FunctionRunner,
    all_free,
    config,
    limits,
    make_core,
    params,
    prompt,
    run_all,
    sequences,
)

from nanoinfer import BlockManager, SamplingParams, Scheduler, simulate
from nanoinfer.reasons import Preemption


def test_a_re_prefill_yields_a_token_like_any_other():
    """B43: B comes back as 8+1 at step 4, and its completions go from 1 to 2."""
    core = make_core(config(4, 5))
    core.start_trace()
    for tag in (0, 1):
        core.add(prompt(8, tag), params(4))
    first, second = core.sequences[0], core.sequences[1]
    lengths = []
    while not core.is_finished():
        core.step()
        lengths.append(second.num_completion_tokens)
    step = core.trace.steps[4]
    (row,) = step.rows
    assert (row.seq_id, row.num_computed, row.num_scheduled, len(row.block_table)) == (1, 8, 1, 3)
    assert lengths[3:5] == [1, 2]
    assert [len(output.completion_token_ids) for output in (first, second)] == [4, 4]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("caching", [True, False])
def test_completions_do_not_depend_on_preemption(policy, caching):
    """B43: the same tokens in a roomy pool and under pressure."""
    prompts = [prompt(n, n) for n in (8, 7, 5, 9)]
    roomy = simulate(prompts, params(9), policy=policy, **limits(4, 64))
    tight = simulate(prompts, params(9), policy=policy, enable_prefix_caching=caching, **limits(4, 5))
    assert not any(step.preempted for step in roomy.steps)
    assert sum(len(step.preempted) for step in tight.steps) >= 2
    assert [o["token_ids"] for o in tight.outputs] == [o["token_ids"] for o in roomy.outputs]


def test_the_victim_is_the_tail_of_running_and_goes_to_the_front_of_waiting():
    """Three run, the first needs a block: the third loses its own and stands before a newcomer."""
    trace = simulate(
        [prompt(7), prompt(5, 1), prompt(6, 2), prompt(9, 3)], params(6), arrivals=[0, 0, 0, 1], **limits(4, 6)
    )
    step = next(step for step in trace.steps if step.preempted)
    assert step.preempted == [Preemption(victim=2, on_behalf_of=0, rule="tail", blocks=2, tokens=7)]
    assert step.waiting == [2, 3]
    assert [row.seq_id for row in step.rows] == [0, 1]
    assert str(step.stop).startswith("NO_BLOCKS"), "taken before decode, so the victim is not what it speaks of"


def test_a_victim_may_stand_in_waiting_beside_queue_empty():
    """The admission stop is taken before decode."""
    trace = simulate([prompt(n, i) for i, n in enumerate((7, 5, 6))], params(6), **limits(4, 6))
    step = next(step for step in trace.steps if step.preempted)
    assert (step.stop.reason, step.waiting) == ("QUEUE_EMPTY", [2])


class WantsTwoFreeBlocks(BlockManager):
    """A manager that keeps one block in hand, so that one victim may not be enough."""

    def can_append(self, seq):
        return super().can_append(seq) and len(self.free_block_ids) >= 2


def test_several_victims_in_one_step_wait_in_their_old_order():
    """Who needs a block goes on preempting from the tail; the victims stand in `waiting` as they ran."""
    scheduler = Scheduler(config(4, 4), WantsTwoFreeBlocks)
    for seq in sequences((4, 3, 3, 3), 4, max_tokens=8):
        scheduler.add(seq)
    scheduler.postprocess(scheduler.schedule(), [1, 2, 3, 4])
    plan = scheduler.schedule()
    assert plan.preempted == [
        Preemption(3, 0, "tail", 1, 3),
        Preemption(2, 0, "tail", 1, 3),
        Preemption(1, 1, "self", 1, 3),
    ]
    assert [seq.seq_id for seq in scheduler.waiting] == [1, 2, 3]
    assert [row.seq_id for row in plan.rows] == [0]


def test_a_sequence_with_nobody_behind_it_preempts_itself():
    trace = simulate([prompt(8), prompt(8, 1)], params(5), **limits(4, 5))
    step = next(step for step in trace.steps if step.preempted)
    assert step.preempted == [Preemption(victim=1, on_behalf_of=1, rule="self", blocks=2, tokens=8)]
    assert [row.seq_id for row in step.rows] == [0]
    assert step.waiting == [1]


def test_a_step_that_preempts_under_the_mixed_policy_admits_nobody():
    trace = simulate(
        [prompt(7), prompt(5, 1), prompt(6, 2), prompt(2, 3)],
        params(6),
        arrivals=[0, 0, 0, 2],
        policy="mixed",
        **limits(4, 6),
    )
    step = next(step for step in trace.steps if step.preempted)
    assert str(step.stop) == f"PREEMPTED_THIS_STEP victims={len(step.preempted)}"
    assert step.waiting == [2, 3]
    admitted = [e.seq_id for e in trace.events if e.kind == "admit" and e.step == step.index]
    assert admitted == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("caching", [True, False])
def test_a_tiny_cache_ends_and_says_what_it_wasted(policy, caching):
    """B49: every step computes something, the number of steps is bounded, and the waste is shown."""
    trace = simulate(
        [prompt(7, i) for i in range(5)],
        params(9),
        policy=policy,
        enable_prefix_caching=caching,
        **limits(4, 5),
    )
    assert all(step.num_batched_tokens >= 1 for step in trace.steps)
    assert len(trace.steps) <= 5 * (9 + 7)
    figures = trace.metrics()
    assert figures["num_preemptions"] == sum(len(step.preempted) for step in trace.steps) >= 1
    computed = sum(step.num_batched_tokens for step in trace.steps)
    useful = 5 * (7 + 9 - 1)
    assert figures["recomputed_tokens"] == computed - useful
    if not caching:
        lost = sum(record.tokens for step in trace.steps for record in step.preempted)
        assert figures["recomputed_tokens"] == lost > 0


def test_an_empty_plan_with_work_queued_is_an_error_with_a_dump():
    """B49: it cannot happen under the bound; if a policy does it, the state is in the message."""
    scheduler = Scheduler(config(4, 6))
    for seq in sequences((4, 3), 4):
        scheduler.add(seq)
    scheduler.block_manager.can_allocate = lambda seq: -1
    with pytest.raises(RuntimeError, match=r"no sequence can run") as error:
        scheduler.schedule()
    for part in ("NO_BLOCKS", "waiting", "running", "prompt=4", "free blocks: 6 of 6"):
        assert part in str(error.value)


def test_the_time_to_the_first_token_survives_a_preemption():
    """B50: set once, and preemptions are counted per sequence."""
    trace = simulate([prompt(8), prompt(8, 1)], params(5), **limits(4, 5))
    first, second = trace.metrics()["requests"]
    assert (first["num_preemptions"], second["num_preemptions"]) == (0, 1)
    assert (first["ttft"], second["ttft"]) == (1, 1)
    assert [o["num_preemptions"] for o in trace.outputs] == [0, 1]


def test_max_num_seqs_caps_the_batch_and_not_the_running_queue():
    """B51: three run although a batch holds two, and the same two decode until they are done."""
    trace = simulate([prompt(3, i) for i in range(3)], params(4), **limits(4, 16, M=2))
    assert max(len(step.running) for step in trace.steps) == 3
    assert max(len(step.rows) for step in trace.steps) == 2
    decodes = [[row.seq_id for row in step.rows] for step in trace.steps if step.phase == "decode"]
    assert decodes == [[0, 1]] * 3 + [[2]] * 3, "decode is not round robin"


def test_prefill_first_starves_decode_while_prompts_keep_coming():
    """B52: A gets its second token only at step 7."""
    trace = simulate(
        [prompt(5, i) for i in range(7)], [params(4)] + [params(1)] * 6, arrivals=range(7), **limits(4, 32, B=8)
    )
    steps_of_a = [step.index for step in trace.steps if any(row.seq_id == 0 for row in step.rows)]
    assert steps_of_a[:2] == [0, 7]
    assert all(str(step.decode_stop) == "PHASE_EXCLUSIVE" for step in trace.steps[:7])


def test_the_mixed_policy_does_not_starve_decode():
    """B52: the fairer policy is a separate, named option."""
    trace = simulate(
        [prompt(5, i) for i in range(7)],
        [params(4)] + [params(1)] * 6,
        arrivals=range(7),
        policy="mixed",
        **limits(4, 32, B=8),
    )
    assert [step.index for step in trace.steps if any(row.seq_id == 0 for row in step.rows)] == [0, 1, 2, 3]
    assert trace.steps[1].phase == "mixed"


def test_a_head_that_does_not_fit_blocks_those_behind_it():
    """B53: R's prefill, five decodes of R, BIG at step 6, SMALL at step 7."""
    trace = simulate([prompt(4), prompt(14, 1), prompt(2, 2)], [params(6), params(1), params(1)], **limits(4, 4))
    assert [(step.phase, [row.seq_id for row in step.rows]) for step in trace.steps] == (
        [("prefill", [0])] + [("decode", [0])] * 5 + [("prefill", [1]), ("prefill", [2])]
    )
    assert all(step.stop.reason == "NO_BLOCKS" for step in trace.steps[:7])


def test_equal_prompts_under_pressure_break_no_assertion():
    """B54: several samples of one prompt, preempted again and again."""
    runner = FunctionRunner(lambda ids: (len(ids) * 7 + ids[-1]) % 5)
    core = make_core(config(2, 7, M=3), runner)
    for _ in range(5):
        core.add(prompt(5), params(8))
    done = run_all(core)
    assert all(len(seq.completion_token_ids) == 8 for seq in done)
    assert len({tuple(seq.completion_token_ids) for seq in done}) == 1
    assert sum(seq.num_preemptions for seq in done) > 0
    assert all_free(core.scheduler)


def test_a_recorded_preemption_reads_as_its_fields():
    """The tokens are those that had KV: 7 prompt tokens and one decoded, but not the newest sample."""
    trace = simulate([prompt(n, i) for i, n in enumerate((7, 5, 6))], SamplingParams(max_tokens=6), **limits(4, 6))
    record = next(p for step in trace.steps for p in step.preempted)
    (event,) = [e for e in trace.events if e.kind == "preempt"][:1]
    assert (event.seq_id, event.data["on_behalf_of"]) == (record.victim, record.on_behalf_of)
    released = [e for e in trace.events if e.kind == "release" and e.seq_id == record.victim and e.step == event.step]
    assert len(released) == record.blocks
