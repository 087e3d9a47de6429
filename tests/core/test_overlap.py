"""The overlapped loop decides without knowing the newest tokens, and gives what the plain loop gives."""

import signal
from collections import Counter

import pytest
from kit.helpers import (
    POLICIES,
    FunctionRunner,
    all_free,
    check_pool,
    config,
    limits,
    live_state,
    make_core,
    one_in,
    params,
    prompt,
    run_all,
)
from kit.lazy_device import DeviceError, Driver, LazyDevice
from kit.workloads import Workload

from nanoinfer import EngineConfig, SamplingParams, Scheduler, Sequence, simulate
from nanoinfer.core.overlap.in_flight import PENDING
from nanoinfer.core.overlap.scheduler import Overlapped, is_pending, overlapped
from nanoinfer.core.plan import StepPlan, StepResult
from nanoinfer.core.scheduler import scheduler_class
from nanoinfer.reasons import Stop, StopReason
from nanoinfer.trace.recorder import TraceRecorder

SHARDS, RUNS = 6, 400
EOS = 3


def completion_and_reason(work: Workload, i: int) -> tuple[list[int], str]:
    """What request `i` must give and why it must end, worked out without any scheduler."""
    ids, p = work.completion(i), work.params[i]
    if ids[-1] in work.config.eos and not p.ignore_eos:
        return ids, "eos"
    return ids, "stop" if ids[-1] in p.stop_token_ids else "length"


def run_seed(seed: int, trouble: float = 0.0):
    try:
        run = Driver(seed, trouble).run()
        for i, seq in run.done.items():
            assert (seq.completion_token_ids, seq.finish_reason) == completion_and_reason(run.work, i), f"request {i}"
        for i, seq in run.aborted.items():
            known = seq.completion_token_ids
            assert (known, seq.finish_reason) == (run.work.completion(i)[: len(known)], "abort"), f"request {i}"
        assert run.done.keys() | run.aborted.keys() == set(range(len(run.work.prompts)))
        assert all_free(run.core.scheduler)
        check_pool(run.core.scheduler)
        for i in range(len(run.trace.steps)):
            assert vars(run.trace.state(i)) == run.states[i], f"step {i}"
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return run


# ---- random runs --------------------------------------------------------------------------


@pytest.mark.parametrize("shard", one_in(6, range(SHARDS)))
def test_outputs_folds_and_waste_of_random_runs(shard):
    """Eos, stop ids, aborts, preemptions, chunks, prefix hits, both policies; the device checks every slot it reads."""
    seen = Counter()
    for seed in range(shard * RUNS, (shard + 1) * RUNS):
        run = run_seed(seed)
        wasted = [(step.index, seq_id) for step in run.trace.steps for seq_id in step.columns.wasted]
        assert len(wasted) == run.wasted == run.trace.metrics()["wasted_rows"], f"seed {seed}"
        seen.update(seq.finish_reason for seq in [*run.done.values(), *run.aborted.values()])
        seen["wasted"] += len(wasted)
        seen[run.work.config.policy] += 1
        seen["preempted"] += sum(len(step.preempted) for step in run.trace.steps)
        seen["hits"] += run.trace.metrics()["prefix_hit_rate"] > 0
        seen.update(f"late: {e.data['late']}" for e in run.trace.events if e.kind == "finish" and "late" in e.data)
    rare = {name for name, count in seen.items() if count < 20}
    assert rare <= {"abort", "late: waiting", "stop"}, seen
    assert len(seen) == 9 + len(POLICIES), f"the runs must hold every case: {seen}"


@pytest.mark.parametrize("shard", one_in(4, range(4)))
def test_failing_and_interrupted_steps_change_no_output(shard):
    """Launches and waits fail and are interrupted, before and after the fact; the trace still folds."""
    for seed in range(shard * 300, (shard + 1) * 300):
        run_seed(10**6 + seed, trouble=0.15)


@pytest.mark.parametrize("seed", range(60))
def test_with_nothing_to_wait_for_both_loops_decide_the_same(seed):
    """No eos and no stop ids: how long a sequence gets is known without its tokens."""
    work = Driver(seed).work
    settings = {name: getattr(work.config, name) for name in ("kvcache_block_size", "num_kvcache_blocks", "policy")}
    settings |= {name: getattr(work.config, name) for name in ("max_num_batched_tokens", "max_num_seqs")}
    each = [params(p.max_tokens) for p in work.params]
    needed = max(
        -(-(len(ids) + p.max_tokens - 1) // work.config.kvcache_block_size)
        for ids, p in zip(work.prompts, each, strict=True)
    )
    settings["num_kvcache_blocks"] = max(needed, settings["num_kvcache_blocks"])
    traces = [
        simulate(work.prompts, each, work.token, arrivals=work.arrivals, overlap=overlap, **settings)
        for overlap in (False, True)
    ]
    plain, overlapped = traces
    assert [step.decision for step in plain.steps] == [step.decision for step in overlapped.steps]
    assert plain.events == overlapped.events
    assert plain.outputs == overlapped.outputs
    assert overlapped.metrics()["wasted_rows"] == 0


# ---- single cases -------------------------------------------------------------------------


def scripted(ids):
    """Sequence 0 (first token 1) ends with its third token, the others never do."""
    return EOS if ids[0] == 1 and len(ids) == 6 else 8


def eos_run(**more):
    return simulate(
        [prompt(4), prompt(4, 1)],
        params(6, ignore_eos=False),
        token_fn=scripted,
        eos=EOS,
        **limits(4, 16) | {"overlap": True} | more,
    )


def test_an_eos_is_known_one_step_late_and_costs_one_row():
    plain, overlapped = eos_run(overlap=False), eos_run()
    assert plain.outputs == overlapped.outputs
    assert [step.columns.wasted for step in overlapped.steps] == [[], [], [], [0], [], []]
    assert not any(step.columns.wasted for step in plain.steps)
    assert [row.wasted for row in overlapped.steps[3].rows] == [True, False]
    assert overlapped.steps[2].running == [0, 1], "the end of sequence 0 was not known yet"
    assert overlapped.steps[3].running == [1]


def test_the_last_wasted_row_is_waited_for_and_recorded():
    trace = simulate([prompt(4)], params(6, ignore_eos=False), token_fn=scripted, eos=EOS, overlap=True, **limits(4, 8))
    assert [step.columns.wasted for step in trace.steps] == [[], [], [], [0]]
    assert len(trace.steps[-1].free_blocks) == 8


def test_a_length_limit_needs_no_token_and_wastes_nothing():
    core = make_core(config(4, 8, overlap=True))
    core.add(prompt(4), params(2))
    assert core.step() == []
    assert [seq.num_completion_tokens for seq in core.scheduler.running] == [1]
    assert core.step() == []
    assert all_free(core.scheduler), "its last token is in flight and needs no slot"
    assert not core.is_finished()
    (seq,) = core.step()
    assert (len(seq.completion_token_ids), seq.finish_reason) == (2, "length")
    assert core.is_finished()


@pytest.mark.parametrize(("last", "reason"), [(EOS, "eos"), (9, "stop"), (7, "length")])
def test_the_reason_is_corrected_when_the_last_allowed_token_ends_the_request_anyway(last, reason):
    trace = simulate(
        [prompt(4)],
        params(2, ignore_eos=False, stop_token_ids=[9]),
        token_fn=lambda ids: last if len(ids) == 5 else 8,
        eos=EOS,
        overlap=True,
        **limits(4, 8),
    )
    assert trace.outputs[0]["finish_reason"] == reason
    assert trace.metrics()["requests"][0]["finish_reason"] == reason
    finishes = [(e.step, e.data) for e in trace.events if e.kind == "finish"]
    corrected = [(2, {"reason": reason, "late": "ended"})] if reason != "length" else []
    assert finishes == [(1, {"reason": "length"}), *corrected]


def test_a_pending_token_is_never_shown():
    core = make_core(config(4, 8, overlap=True))
    core.add(prompt(4), params(3))
    core.step()
    seq = core.sequences[0]
    assert seq.token_ids[-1] == PENDING
    assert seq.completion_token_ids == []
    assert core.abort(0).completion_token_ids == []
    assert PENDING not in seq.token_ids
    assert run_all(core) == []
    assert all_free(core.scheduler)


def test_a_pending_token_is_never_prefilled():
    scheduler = overlapped(Scheduler)(config(4, 8))
    seq = Sequence(0, prompt(4), params(3), 4)
    scheduler.add(seq)
    plan = scheduler.schedule()
    scheduler.advance(plan)
    scheduler.running.remove(seq)
    scheduler.preempt(seq)
    with pytest.raises(AssertionError, match="not known yet"):
        scheduler.schedule()
    scheduler.undo(plan)
    scheduler.resolve(plan, [8])
    assert seq.completion_token_ids == [8]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_victim_ends_in_waiting_when_its_pending_token_proves_to_be_eos(policy):
    """Sequence 1 is preempted in step 1, while its first token, which ends it, is in flight."""
    trace = simulate(
        [prompt(8), prompt(7, 1)],
        params(5, ignore_eos=False),
        token_fn=lambda ids: EOS if ids[0] == 1001 else 8,
        eos=EOS,
        overlap=True,
        policy=policy,
        **limits(4, 4),
    )
    assert [p.victim for p in trace.steps[1].preempted] == [1]
    assert trace.outputs[1]["token_ids"] == [EOS]
    assert trace.outputs[1]["num_preemptions"] == 1
    assert (trace.steps[1].waiting, trace.steps[1].running) == ([], [0])
    assert {"reason": "eos", "late": "waiting"} in [e.data for e in trace.events if e.kind == "finish"]
    assert trace.metrics()["wasted_rows"] == 0


def test_resolve_and_postprocess_want_one_token_per_row():
    scheduler = overlapped(Scheduler)(config(4, 8))
    scheduler.add(Sequence(0, prompt(4), params(3), 4))
    plan = scheduler.schedule()
    for method in (scheduler.postprocess, scheduler.resolve):
        with pytest.raises(ValueError, match="needs one token per row: 1 rows, 2 token_ids"):
            method(plan, [1, 2])


def test_advance_and_resolve_are_the_halves_of_postprocess():
    """One after the other at once, they leave the same state."""
    states = []
    for halves in (False, True):
        scheduler = overlapped(Scheduler)(config(4, 6, eos=(EOS,)))
        for i, n in enumerate((7, 5, 6)):
            scheduler.add(Sequence(i, prompt(n, i), params(6, ignore_eos=i == 1), 4))
        states.append([])
        while not scheduler.is_finished():
            plan = scheduler.schedule()
            ids = [EOS if len(row.seq) == 9 else 8 for row in plan.rows]
            if halves:
                scheduler.advance(plan)
                scheduler.resolve(plan, ids)
            else:
                scheduler.postprocess(plan, ids)
            states[-1].append((live_state(scheduler), [row.token_id for row in plan.rows]))
    assert states[0] == states[1]


# ---- the loop -----------------------------------------------------------------------------


def test_a_step_is_launched_before_the_one_before_it_is_waited_for():
    order = []

    class Device(FunctionRunner):
        def launch(self, plan):
            number = len(self.plans)
            self.plans.append(plan)
            order.append(f"launch {number}")
            ends = [row.num_computed + row.num_scheduled for row in plan.rows]
            runner = self

            class Launch:
                def result(self):
                    order.append(f"wait {number}")
                    contexts = [row.seq.token_ids[:end] for row, end in zip(plan.rows, ends, strict=True)]
                    return StepResult(list(map(runner.token_fn, contexts)), {"gpu": 2.5}, 8)

            return Launch()

    for overlap in (True, False):
        order.clear()
        core = make_core(config(4, 8, overlap=overlap), Device())
        trace = core.start_trace()
        core.add(prompt(4), params(3))
        run_all(core)
        names = ["launch 0", "launch 1", "wait 0", "launch 2", "wait 1", "wait 2"]
        assert order == (names if overlap else sorted(names, key=lambda name: name[-1]))
        assert [(step.timing["gpu"], step.graph_size) for step in trace.steps] == [(2.5, 8)] * 3
        assert ("run" in trace.steps[0].timing) != overlap
        assert ("wait" in trace.steps[0].timing) == overlap


def test_a_plan_builds_on_the_tokens_of_the_launch_before():
    contexts = []

    def token_fn(ids):
        contexts.append(ids)
        return 100 + len(ids)

    core = make_core(config(4, 8, overlap=True), FunctionRunner(token_fn))
    core.add(prompt(3), params(4))
    (seq,) = run_all(core)
    assert seq.completion_token_ids == [103, 104, 105, 106]
    assert contexts[-1] == [*prompt(3), 103, 104, 105]


def test_each_step_is_told_once_and_in_order_with_its_tokens():
    told = []
    trace = simulate(
        [prompt(4), prompt(9, 1)],
        params(4),
        on_step=lambda t, i: told.append((i, len(t.steps), t.steps[i].columns.token_id)),
        overlap=True,
        **limits(4, 8, B=8),
    )
    assert [i for i, _, _ in told] == list(range(len(trace.steps)))
    assert [ids for _, _, ids in told] == [step.columns.token_id for step in trace.steps]
    assert all(count == i + 1 for i, count, _ in told)


def test_a_recording_begins_and_ends_at_rest():
    core = make_core(config(4, 8, overlap=True))
    core.add(prompt(9), params(9))
    core.step()
    first = core.start_trace()
    assert not any(is_pending(seq) for seq in core.sequences.values())
    assert vars(first.header.initial) == live_state(core.scheduler)
    core.step()
    core.step()
    assert len(first.steps) == 1
    core.stop_trace()
    assert len(first.steps) == 2
    assert vars(first.state(1)) == live_state(core.scheduler)
    assert {event.step for event in first.events} <= {0, 1, 2}
    core.step()
    second = core.start_trace()
    (seq,) = run_all(core)
    core.stop_trace()
    assert len(seq.completion_token_ids) == 9
    assert vars(second.state(-1)) == live_state(core.scheduler)
    assert len(second.steps) == 9 - 4


def test_a_class_that_changes_schedule_alone_may_overlap():
    class Own(Scheduler):
        def postprocess(self, plan, token_ids):
            super().postprocess(plan, token_ids)

    class Whole(Overlapped, Own):
        def advance(self, plan):
            super().advance(plan)

    class OtherPolicy(Scheduler):
        def schedule(self):
            return super().schedule()

    class Foreign:
        def schedule(self): ...

    make_core(config(4, 8), scheduler_cls=Own)
    make_core(config(4, 8, overlap=True), scheduler_cls=Whole)
    core = make_core(config(4, 8, overlap=True), scheduler_cls=OtherPolicy)
    assert core.start_trace().header.scheduler_cls.endswith("OtherPolicy"), "the trace names the class that was given"
    with pytest.raises(TypeError, match="Own: it has its own postprocess, and overlapping needs"):
        make_core(config(4, 8, overlap=True), scheduler_cls=Own)
    with pytest.raises(TypeError, match="Foreign: it does not inherit from nanoinfer's Scheduler"):
        make_core(config(4, 8, overlap=True), scheduler_cls=Foreign)


@pytest.mark.parametrize("policy", POLICIES)
def test_when_a_sequence_gives_up_its_slot_is_a_rule_of_its_own(policy):
    """Kept until its last token is known, a sequence blocks its slot a step longer, and gives the same tokens."""

    class Keeps(Overlapped, scheduler_class(policy)):
        def gives_up_slot(self, seq):
            return False

        def schedule(self):
            held = [seq for seq in self.running if is_pending(seq) and self._at_max_length(seq)]
            for seq in held:
                self.running.remove(seq)
            nothing = StepPlan("decode", [], Stop(StopReason.QUEUE_EMPTY), Stop(StopReason.RUNNING_EMPTY))
            plan = scheduler_class(policy).schedule(self) if self.waiting or self.running else nothing
            self.running.extendleft(reversed(held))
            return plan

    runs = [
        simulate([prompt(4), prompt(6, 1)], params(3), overlap=True, scheduler_cls=cls, policy=policy, **limits(4, 8))
        for cls in (None, Keeps)
    ]
    early, late = runs
    assert [output["token_ids"] for output in late.outputs] == [output["token_ids"] for output in early.outputs]
    ends = [[event.step for event in trace.events if event.kind == "finish"] for trace in runs]
    assert all(a < b for a, b in zip(*ends, strict=True)), ends


@pytest.mark.parametrize("value", [1, "yes"])
def test_overlap_is_true_false_or_none(value):
    with pytest.raises(ValueError, match="overlap must be True, False or None"):
        EngineConfig(overlap=value)


# ---- time ---------------------------------------------------------------------------------


def test_with_a_cost_model_tokens_come_when_the_device_has_run_them():
    """The scheduler costs nothing there, so both loops give every token at the same time."""
    costs = [
        dict(cost_model=lambda plan: 2.0 + plan.num_batched_tokens, **limits(4, 16), overlap=o) for o in (False, True)
    ]
    plain, overlapped = (simulate([prompt(4), prompt(6, 1)], params(3), **cost) for cost in costs)
    assert [step.clock for step in plain.steps] == [0, 12, 16]
    assert [step.clock for step in overlapped.steps] == [0, 0, 12], "chosen while the step before ran"
    ends = [[step.clock + step.timing["duration"] for step in trace.steps] for trace in (plain, overlapped)]
    assert ends == [[12, 16, 20]] * 2
    for name in ("ttft", "inter_token_latency", "latency", "duration"):
        assert plain.metrics()[name] == overlapped.metrics()[name]


def test_without_a_cost_model_a_step_is_launched_at_its_number_and_known_two_later():
    trace = simulate([prompt(4)], params(3), overlap=True, **limits(4, 16))
    assert [(step.clock, step.timing["duration"]) for step in trace.steps] == [(0, 2), (1, 2), (2, 2)]
    (request,) = trace.metrics()["requests"]
    assert (request["ttft"], request["latency"]) == (2, 4)
    assert trace.metrics()["inter_token_latency"]["max"] == 1


def test_a_late_known_end_is_dated_when_its_token_was_known():
    """Not at the end of the step that its row was wasted in."""
    trace = eos_run()
    assert trace.metrics()["requests"][0]["latency"] == trace.steps[2].clock + trace.steps[2].timing["duration"] == 4


# ---- failures and interrupts --------------------------------------------------------------


def small_core(eos=(EOS,), **more):
    settings = config(4, 6, eos=eos, overlap=True, **more)
    prompts = [prompt(7), prompt(5, 1), prompt(6, 2)]
    work = Workload(settings, prompts, [SamplingParams(max_tokens=6)] * 3, [0])
    device = LazyDevice(work)
    core = make_core(settings, device)
    for ids, p in zip(work.prompts, work.params, strict=True):
        core.add(ids, p)
    return work, device, core


def finish(work, core):
    done = {seq.seq_id: seq.completion_token_ids for seq in run_all(core)}
    assert all_free(core.scheduler)
    return done


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("error", [DeviceError("before"), DeviceError("after"), KeyboardInterrupt("after")], ids=repr)
def test_a_failing_launch_undoes_only_its_own_plan(at, error, policy):
    work, device, core = small_core(policy=policy)
    done = {}
    for _ in range(at):
        done |= {seq.seq_id: seq.completion_token_ids for seq in core.step()}
    awaited = core._awaiting
    pending = [seq.seq_id for seq in core.sequences.values() if is_pending(seq)]
    device.launch_errors.append(error)
    with pytest.raises(type(error)):
        core.step()
    check_pool(core.scheduler)
    assert core._launched is None
    assert core._awaiting is awaited
    assert [seq.seq_id for seq in core.sequences.values() if is_pending(seq)] == pending, "the step before will tell"
    assert done | finish(work, core) == {i: work.completion(i) for i in range(3)}


@pytest.mark.parametrize("at", range(1, 6))
def test_an_interrupted_wait_undoes_nothing(at):
    _, device, core = small_core()
    plain = small_core()
    for c in (core, plain[2]):
        c.start_trace()
        for _ in range(at):
            c.step()
    device.result_errors.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        core.step()
    run_all(core)
    run_all(plain[2])
    assert [s.decision for s in core.stop_trace().steps] == [s.decision for s in plain[2].stop_trace().steps]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("at", range(1, 7))
def test_a_lost_result_is_computed_again_and_the_prefix_cache_forgets(at, policy):
    work, device, core = small_core(policy=policy)
    trace = core.start_trace()
    done = {}
    for _ in range(at):
        done |= {seq.seq_id: seq.completion_token_ids for seq in core.step()}
    device.result_errors.append(DeviceError())
    with pytest.raises(DeviceError):
        core.step()
    assert (core._launched, core._awaiting) == (None, None)
    assert not core.scheduler.block_manager.hash_to_block_id
    check_pool(core.scheduler)
    assert done | finish(work, core) == {i: work.completion(i) for i in range(3)}
    core.stop_trace()
    assert [event.step for event in trace.events] == sorted(event.step for event in trace.events)
    assert vars(trace.state(-1)) == live_state(core.scheduler)


def test_a_request_that_ended_for_its_length_comes_back_when_its_last_token_is_lost():
    work, device, core = small_core(eos=())
    core.drop([1, 2])
    while core.scheduler.sequences:
        core.step()
    device.result_errors.append(DeviceError())
    with pytest.raises(DeviceError):
        core.step()
    assert [seq.seq_id for seq in core.scheduler.waiting] == [0]
    assert finish(work, core) == {0: work.completion(0)}


@pytest.mark.parametrize("place", ["schedule", "resolve", "advance"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2, 4])
def test_ctrl_c_inside_a_stage_waits_until_it_is_complete(monkeypatch, place, after, call):
    work, _, core = small_core()
    original, calls = getattr(core.scheduler, place), []

    def interrupted(*args):
        calls.append(place)
        if len(calls) == call and not after:
            signal.raise_signal(signal.SIGINT)
        result = original(*args)
        if len(calls) == call and after:
            signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(core.scheduler, place, interrupted)
    done, interrupts = {}, 0
    while not core.is_finished():
        try:
            done |= {seq.seq_id: seq.completion_token_ids for seq in core.step()}
        except KeyboardInterrupt:
            interrupts += 1
        check_pool(core.scheduler)
    assert interrupts == 1
    assert done == {i: work.completion(i) for i in range(3)}


@pytest.mark.parametrize("steps", range(5))
def test_dropping_the_batch_leaves_an_engine_at_rest(steps):
    work, _, core = small_core()
    for _ in range(steps):
        core.step()
    core.drop(range(3))
    assert core.is_finished()
    assert all_free(core.scheduler)
    core.add(work.prompts[0], work.params[0])
    (seq,) = run_all(core)
    assert seq.completion_token_ids == work.completion(0)


def test_rewinding_stamps_what_was_undone_with_the_step_that_comes_next():
    recorder = TraceRecorder([])
    for step in (0, 1, 1, 2):
        recorder.step = step
        recorder.run(step)
    recorder.rewind(1)
    assert [(event.step, event.seq_id) for event in recorder.events] == [(0, 0), (1, 1), (1, 1), (1, 2)]
    assert recorder.step == 1
