"""What happens in the scheduler can be seen from the same process, while it happens."""

import pytest
from kit.helpers import config, limits, make_core, params, prompt, run_all

from nanoinfer import Scheduler, Sequence, simulate
from nanoinfer.trace.recorder import NULL_RECORDER, Recorder, TraceRecorder


def test_a_recorder_on_the_scheduler_sees_every_mutation_at_once():
    """B97: no other process, no log level: the next line after schedule() can look at the events."""
    scheduler = Scheduler(config(4, 8))
    events = []
    scheduler.recorder = scheduler.block_manager.recorder = TraceRecorder(events)
    scheduler.add(Sequence(0, prompt(5), params(2), 4))
    assert [e.kind for e in events] == ["arrive"]
    plan = scheduler.schedule()
    assert [e.kind for e in events] == ["arrive", "admit", "allocate", "allocate", "run"]
    scheduler.postprocess(plan, [9])
    assert [e.kind for e in events[5:]] == ["register_hash"]
    scheduler.postprocess(scheduler.schedule(), [9])
    assert [e.kind for e in events[6:]] == ["finish", "release", "release"]


def test_an_own_recorder_sees_what_happens():
    """B97: one method per mutation, plain scalars."""
    said = []

    class Printer(Recorder):
        def preempt(self, seq_id, on_behalf_of):
            said.append((seq_id, on_behalf_of))

    core = make_core(config(4, 6))
    core.scheduler.recorder = Printer()
    for i, n in enumerate((7, 5, 6)):
        core.add(prompt(n, i), params(6))
    run_all(core)
    assert said == [(2, 0)]


def test_on_step_is_called_after_each_step_in_this_process():
    """B97."""
    seen = []
    simulate([prompt(5)], params(3), on_step=lambda trace, i: seen.append((i, trace.steps[i].phase)), **limits(4, 8))
    assert seen == [(0, "prefill"), (1, "decode"), (2, "decode")]


def test_a_plan_says_everything_without_a_recorder():
    """Decisions are returned: a student can assert on them with nothing recording."""
    scheduler = Scheduler(config(4, 6))
    assert scheduler.recorder is scheduler.block_manager.recorder is NULL_RECORDER
    for i, n in enumerate((7, 5, 6)):
        scheduler.add(Sequence(i, prompt(n, i), params(6), 4))
    plans = []
    while not any(plan.preempted for plan in plans):
        plans.append(scheduler.schedule())
        scheduler.postprocess(plans[-1], [1] * len(plans[-1].rows))
    assert [plan.phase for plan in plans] == ["prefill", "decode", "decode"]
    assert str(plans[0].stop) == "QUEUE_EMPTY"
    assert [p.victim for p in plans[2].preempted] == [2]
    assert [row.block_table for row in plans[2].rows] == [[0, 1, 5], [2, 3]]


def test_the_do_nothing_recorder_is_shared_and_keeps_nothing():
    assert vars(NULL_RECORDER) == {}
    for name in ("arrive", "admit", "run", "preempt", "finish", "abort", "allocate", "reuse", "share", "release"):
        assert hasattr(Recorder, name)


def test_a_second_recording_at_once_is_an_error_and_so_is_stopping_none():
    core = make_core(config(4, 8))
    with pytest.raises(RuntimeError, match="start_trace"):
        core.stop_trace()
    core.start_trace()
    with pytest.raises(RuntimeError, match="stop_trace"):
        core.start_trace()
    core.stop_trace()
    core.start_trace()


def test_an_error_in_on_step_comes_through_and_loses_nothing():
    """The step has been taken; its results come with the next call."""
    core = make_core(config(4, 8))

    def on_step(trace, i):
        if i == 0:
            raise KeyError("mine")

    trace = core.start_trace(on_step=on_step)
    core.add(prompt(5), params(1))
    core.add(prompt(5, 1), params(2))
    with pytest.raises(KeyError, match="mine"):
        core.step()
    assert sorted(seq.seq_id for seq in run_all(core)) == [0, 1]
    assert len(trace.steps) == 2


def test_students_own_classes_run_and_are_named_in_the_header():
    class MyScheduler(Scheduler):
        """A student's own."""

    trace = simulate([prompt(5)], params(2), scheduler_cls=MyScheduler, **limits(4, 4))
    assert trace.header.scheduler_cls.endswith("MyScheduler")
    assert trace.header.scheduler_cls.startswith(__name__)
