"""A trace is complete: folding its events rebuilds the live scheduler, and no event can be missing unnoticed."""

import random
from collections import Counter

import pytest
from kit.helpers import POLICIES, all_free, config, limits, live_state, make_core, params, prompt, run_all
from kit.workloads import FlakyRunner, RunnerError, drive, random_workload

from nanoinfer import Trace, simulate
from nanoinfer.core.plan import StepResult
from nanoinfer.trace.events import KINDS
from nanoinfer.trace.state import CHECKPOINT_EVERY


def without(trace, position):
    """The same trace with one event missing."""
    events = trace.events[:position] + trace.events[position + 1 :]
    return Trace(trace.header, trace.requests, events, trace.steps, trace.outputs)


def first_mismatch(trace, states):
    """The first step whose folded state differs from the live one, or that does not fold at all; None if none does."""
    for i, expected in enumerate(states):
        try:
            if vars(trace.state(i)) != expected:
                return i
        except ValueError:
            return i
    return None


# ---- the fold -----------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [0.0, 0.1], ids=["calm", "with failing and aborted steps"])
def test_folding_rebuilds_the_scheduler_after_every_step(trouble):
    """Queues, tables, reference counts, hashes, index and free-list order, over 600 random runs."""
    kinds, warm, steps, policies = Counter(), 0, 0, set()
    for seed in range(600):
        trace, states = drive(seed, trouble)
        assert len(states) == len(trace.steps)
        for i, expected in enumerate(states):
            assert vars(trace.state(i)) == expected, f"seed {seed}, step {i}"
        kinds.update(event.kind for event in trace.events)
        warm += trace.header.initial.ref_counts.count(0) < trace.config.num_kvcache_blocks
        steps += len(trace.steps)
        policies.add(trace.config.policy)
    assert set(kinds) == set(KINDS), "the runs must hold every kind of event"
    assert min(kinds.values()) >= 20
    assert warm > 50, "many recordings must begin in the middle of work"
    assert policies == set(POLICIES)


def test_folding_works_in_any_order_of_steps():
    """Backward, forward and at random, also across kept copies of the state."""
    core = make_core(config(4, 9, M=3))
    trace = core.start_trace()
    states = []
    rng = random.Random(5)
    while len(states) < 3 * CHECKPOINT_EVERY:
        if len(core.sequences) < 4:
            core.add([rng.randrange(3) for _ in range(rng.randint(1, 12))], params(rng.randint(1, 15)))
        core.step()
        states.append(live_state(core.scheduler))
    for i in [len(states) - 1, 0, 2 * CHECKPOINT_EVERY, CHECKPOINT_EVERY, CHECKPOINT_EVERY - 1, 1, 0]:
        assert vars(trace.state(i)) == states[i]
    for _ in range(60):
        i = rng.randrange(len(states))
        assert vars(trace.state(i)) == states[i]
        assert (trace.steps[i].waiting, trace.steps[i].running) == (states[i]["waiting"], states[i]["running"])
        assert trace.steps[i].free_blocks == states[i]["free_blocks"]
    assert vars(trace.state(-1)) == states[-1]


def test_rows_carry_the_tables_of_the_plan_in_every_step():
    """Also those of sequences that finish, are aborted or are preempted around that step."""
    for seed in range(150):
        rng = random.Random(seed)
        work = random_workload(rng)
        seen = []

        class Spy(FlakyRunner):
            def run(self, plan):
                tokens = super().run(plan)
                self.core.seen.append(
                    [(r.seq_id, r.num_computed, r.num_scheduled, r.block_table, r.slots) for r in plan.rows]
                )
                return tokens

        runner = Spy(work, rng, 0.0)
        runner.trouble = 0.05
        runner.core = core = make_core(work.config, runner)
        core.seen = seen
        trace = core.start_trace()
        for ids, p in zip(work.prompts, work.params, strict=True):
            core.add(ids, p)
        while not core.is_finished():
            try:
                core.step()
            except RunnerError:
                continue
        got = [
            [(r.seq_id, r.num_computed, r.num_scheduled, r.block_table, r.slots) for r in s.rows] for s in trace.steps
        ]
        assert got == seen, f"seed {seed}"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_growing_trace_folds_while_it_is_recorded(policy):
    """on_step sees the step just run, and its state."""
    sizes = []

    def on_step(trace, i):
        assert i == len(trace.steps) - 1
        state = trace.state(i)
        assert state.waiting == trace.steps[i].waiting
        assert sum(count > 0 for count in state.ref_counts) + len(state.free_blocks) == 6
        sizes.append(i)

    prompts = [prompt(n, n) for n in (7, 5, 6)]
    trace = simulate(prompts, params(6), on_step=on_step, policy=policy, **limits(4, 6))
    assert sizes == list(range(len(trace.steps)))


def test_looking_at_a_state_does_not_change_later_ones():
    trace, states = drive(3)
    for i in range(len(states)):
        state = trace.state(i)
        for value in vars(state).values():
            value.clear()
    assert first_mismatch(trace, states) is None
    assert vars(trace.state(0)) == states[0]


def test_a_recording_may_begin_and_end_anywhere():
    """Two recordings of one run: the second begins where the first ended."""
    core = make_core(config(4, 8))
    core.add(prompt(9), params(9))
    core.add(prompt(9, 1), params(9))
    first = core.start_trace()
    for _ in range(3):
        core.step()
    core.stop_trace()
    between = live_state(core.scheduler)
    core.step()
    skipped = live_state(core.scheduler)
    second = core.start_trace()
    run_all(core)
    core.stop_trace()
    assert vars(first.state(-1)) == between
    assert vars(second.header.initial) == skipped
    assert vars(second.state(-1)) == live_state(core.scheduler)
    assert list(second.requests) == [0, 1]
    assert all(request.arrival is None for request in second.requests.values())
    assert all_free(core.scheduler)


def test_a_step_outside_the_trace_is_an_index_error_with_the_range():
    trace, _ = drive(3)
    for i in (len(trace.steps), -len(trace.steps) - 1):
        with pytest.raises(IndexError, match=rf"{len(trace.steps)} steps"):
            trace.state(i)


# ---- missing events -------------------------------------------------------------------------


def test_dropping_any_single_event_is_noticed():
    """Every event of 60 random runs, one at a time: it does not fold, or some state differs."""
    noticed = Counter()
    for seed in range(60):
        trace, states = drive(seed)
        for position, event in enumerate(trace.events):
            if event.step >= len(trace.steps):
                continue  # after the last step: no state shows it
            assert first_mismatch(without(trace, position), states) is not None, f"seed {seed}: {event} was not missed"
            noticed[event.kind] += 1
    assert set(noticed) == set(KINDS), f"kinds never dropped: {set(KINDS) - set(noticed)}"


@pytest.mark.parametrize("kind", KINDS)
def test_dropping_one_event_of_this_kind_is_noticed(kind):
    """The first such event of a run that has one."""
    for seed in range(600):
        trace, states = drive(seed)
        position = next((p for p, e in enumerate(trace.events) if e.kind == kind and e.step < len(trace.steps)), None)
        if position is not None:
            break
    assert first_mismatch(without(trace, position), states) is not None


def test_a_trace_that_does_not_fold_says_so_every_time():
    """The half-applied state of the first attempt is never handed out."""
    trace = simulate([prompt(3), prompt(2, 1)], params(3), **limits(4, 4))
    position = next(p for p, e in enumerate(trace.events) if e.kind == "run")
    broken = without(trace, position)
    for i in (0, 0, 0, 2, 2, 0):
        with pytest.raises(ValueError, match="does not fold"):
            broken.state(i)


def test_the_states_before_a_missing_event_can_still_be_seen():
    trace, states = drive(3)
    position = next(p for p, e in enumerate(trace.events) if e.kind == "release")
    step = trace.events[position].step
    assert step > 0
    broken = without(trace, position)
    with pytest.raises(ValueError, match="does not fold"):
        broken.state(len(states) - 1)
    assert vars(broken.state(step - 1)) == states[step - 1]


def test_an_event_that_comes_twice_does_not_fold():
    for seed in range(20):
        trace, states = drive(seed)
        for position in range(0, len(trace.events), 5):
            event = trace.events[position]
            if event.step >= len(trace.steps) or event.kind in ("register_hash", "share"):
                continue  # finding a block once more is no contradiction in itself
            events = [*trace.events[: position + 1], *trace.events[position:]]
            doubled = Trace(trace.header, trace.requests, events, trace.steps)
            assert first_mismatch(doubled, states) is not None, f"seed {seed}: {event}"


# ---- recording changes nothing --------------------------------------------------------------


def test_recording_changes_no_decision():
    """The same run with the default do-nothing recorder plans the same rows."""
    for seed in range(50):
        plans = []
        for recorded in (True, False):
            work = random_workload(random.Random(seed))
            runner = FlakyRunner(work, random.Random(1), 0.0)
            core = make_core(work.config, runner)
            if recorded:
                core.start_trace()
            seen = []
            runner.run = lambda plan, w=work, seen=seen: (
                seen.append(repr(plan.rows)),
                StepResult([w.token(r.seq.token_ids) for r in plan.rows]),
            )[1]
            for ids, p in zip(work.prompts, work.params, strict=True):
                core.add(ids, p)
            run_all(core)
            plans.append(seen)
        assert plans[0] == plans[1]


def test_events_are_in_step_order_and_of_known_kinds():
    for seed in range(30):
        trace, _ = drive(seed)
        steps = [event.step for event in trace.events]
        assert steps == sorted(steps)
        assert {event.kind for event in trace.events} <= set(KINDS)
        assert set(trace.requests) >= {event.seq_id for event in trace.events if event.seq_id is not None}
