"""A class that tells the recorder nothing is recorded all the same, and a failure shows what happened."""

import json
import random
import re

import pytest
from kit.helpers import limits, live_state, params, prompt
from kit.small_course import graded, hand_in, line_of, make_course
from kit.workloads import random_workload

from nanoinfer import BlockManager, Scheduler, Trace, compare, simulate
from nanoinfer.core.plan import StepPlan
from nanoinfer.core.policies import POLICIES
from nanoinfer.course.grading import explain_failure, run_student, watched
from nanoinfer.course.grading.failures import trace_file, traces_go_to
from nanoinfer.course.grading.grade import Grading, grade
from nanoinfer.course.grading.submission import describe
from nanoinfer.course.kits.reference import expect_same_decisions
from nanoinfer.reasons import Stop
from nanoinfer.trace.events import KINDS
from nanoinfer.trace.recorder import NULL_RECORDER
from nanoinfer.trace.state import NO_HASH


class QuietManager(BlockManager):
    """Tells nobody anything, whatever recorder it is given."""

    recorder = property(lambda self: NULL_RECORDER, lambda self, recorder: None)


class Muted:
    """Leaves no event in the list, as a class would that does not know recorders."""

    def __init__(self, scheduler):
        self.scheduler = scheduler

    def __enter__(self):
        self.recorder, self.scheduler.recorder = self.scheduler.recorder, NULL_RECORDER

    def __exit__(self, *_):
        self.scheduler.recorder = self.recorder


class Quiet:
    """Stands before a scheduler class among the bases."""

    def add(self, seq):
        with Muted(self):
            super().add(seq)

    def schedule(self):
        with Muted(self):
            return super().schedule()

    def postprocess(self, plan, token_ids):
        with Muted(self):
            super().postprocess(plan, token_ids)


class QuietScheduler(Quiet, Scheduler):
    pass


CLASSES = {
    "quiet manager": {"scheduler_cls": Scheduler, "block_manager_cls": QuietManager},
    "quiet scheduler": {"scheduler_cls": QuietScheduler, "block_manager_cls": BlockManager},
    "both quiet": {"scheduler_cls": QuietScheduler, "block_manager_cls": QuietManager},
}


def random_run(seed, scheduler_cls, block_manager_cls, run):
    """The trace of a random run, and the live states it went through."""
    work = random_workload(random.Random(seed))
    config = work.config.to_dict()
    config.pop("eos")
    live, states = [], []

    class Seen(*((Quiet,) if issubclass(scheduler_cls, Quiet) else ()), POLICIES[work.config.policy]):
        def __init__(self, *args):
            super().__init__(*args)
            live.append(self)

    trace = run(
        work.prompts,
        work.params,
        arrivals=work.arrivals,
        token_fn=work.token,
        eos=list(work.config.eos),
        scheduler_cls=watched(Seen),
        block_manager_cls=block_manager_cls,
        on_step=lambda trace, i: states.append(live_state(live[-1])),
        **config,
    )
    return trace, states


@pytest.mark.parametrize("name", CLASSES)
def test_the_events_found_rebuild_every_state(name):
    kinds = set()
    for seed in range(60):
        trace, states = random_run(seed, **CLASSES[name], run=simulate)
        assert [vars(trace.state(i)) for i in range(len(trace.steps))] == states
        kinds |= {event.kind for event in trace.events}
    assert kinds == set(KINDS) - {"abort"}


def test_without_watching_a_quiet_class_leaves_no_usable_trace():
    """Otherwise the test above would show nothing."""
    trace = simulate(
        [prompt(9)], params(3), scheduler_cls=QuietScheduler, block_manager_cls=QuietManager, **limits(4, 8)
    )
    assert trace.events == []


def test_events_that_the_class_recorded_itself_are_kept():
    work = [[prompt(9), prompt(9), prompt(6, 1)], params(6)]
    own = simulate(*work, **limits(4, 6))
    trace = run_student(*work, **limits(4, 6))
    assert trace.events == own.events
    assert trace.header == own.header
    assert any(event.data and event.data.get("miss_hash") for event in trace.events)


def test_a_quiet_run_explains_explores_and_compares_like_a_recorded_one(tmp_path):
    work = [[prompt(9), prompt(9), prompt(6, 1)], params(6)]
    quiet = run_student(*work, **CLASSES["both quiet"], **limits(4, 6))
    own = simulate(*work, **limits(4, 6))
    assert quiet.header.scheduler_cls.endswith("test_grading_adapter.QuietScheduler")
    assert [quiet.state(i) for i in range(len(quiet.steps))] == [own.state(i) for i in range(len(own.steps))]
    assert compare(own, quiet).first_difference is None
    quiet.to_html(tmp_path / "run.html")
    quiet.save(tmp_path / "run.jsonl")
    assert Trace.load(tmp_path / "run.jsonl") == quiet


def test_a_run_without_end_stops_at_its_cap_and_shows_the_queues():
    class Deaf(Scheduler):
        def postprocess(self, plan, token_ids):
            pass

    with pytest.raises(AssertionError, match="step 50: expected the run to have ended") as error:
        run_student([prompt(4)], params(3), scheduler_cls=Deaf, max_steps=50, **limits(4, 8))
    assert "waiting [], running [0]" in str(error.value)
    assert "7 free" in str(error.value)


def test_a_run_that_gets_stuck_shows_its_last_step_and_the_state():
    class GivesUp(Scheduler):
        def schedule(self):
            if not self.running:
                return super().schedule()
            return self.checked(StepPlan("decode", [], Stop("QUEUE_EMPTY"), Stop("RUNNING_EMPTY")))

    with pytest.raises(AssertionError, match="step 0: expected a step after this one, got RuntimeError: no sequence"):
        run_student([prompt(4)], params(3), scheduler_cls=GivesUp, **limits(4, 8))


# ---- what a failure shows ---------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    traces_go_to(tmp_path, "test_x[a/b]")
    yield tmp_path
    traces_go_to(None, "test")


@pytest.fixture
def trace():
    return simulate([prompt(8), prompt(8, 1)], params(5), **limits(4, 5))


def test_a_failure_shows_the_step_the_queues_the_blocks_and_why(trace, folder):
    words = explain_failure(trace, 1, "a decode of both", "nobody waits")
    assert "step 1: expected a decode of both" in words
    assert "why: nobody waits" in words
    state = trace.state(1)
    assert f"waiting {state.waiting}, running {state.running}" in words
    assert ", ".join(f"{seq_id}: {table}" for seq_id, table in state.block_tables.items()) in words
    assert str(trace.steps[1].stop) in words


def test_a_failure_leaves_a_trace_that_opens(trace, folder):
    words = explain_failure(trace, -1, "an end", "all are done")
    path, step = re.search(r'Trace.load\("(.+)"\).explore\(step=(\d+)\)', words).groups()
    assert Trace.load(path) == trace
    assert int(step) == len(trace.steps) - 1
    assert path == str(trace_file(folder, "test_x[a/b]")) == str(folder / "failed-test_x-a-b.jsonl")


def test_a_failure_of_a_broken_trace_is_still_explained(trace, folder):
    del trace.events[3]
    assert "the state cannot be rebuilt" in explain_failure(trace, 1, "x", "y")
    assert "step 99: expected x" in explain_failure(trace, 99, "x", "y")


def test_a_folder_that_cannot_be_written_costs_only_the_file(trace, tmp_path):
    traces_go_to(tmp_path / "no" / "folder", "t")
    assert "Trace.load" not in explain_failure(trace, 0, "x", "y")
    traces_go_to(None, "t")
    assert "Trace.load" not in explain_failure(trace, 0, "x", "y")


def test_the_trace_of_a_failing_test_lies_beside_the_submission_until_it_passes(tmp_path):
    course = make_course(tmp_path / "course")
    course.public_tests("a1").write_text(
        "import pytest\nfrom nanoinfer.course.grading import explain_failure, run_student\n\n"
        "@pytest.mark.points(1)\ndef test_run(impl):\n    trace = run_student([[1, 2, 3]])\n"
        "    assert impl.double(1) == 2, explain_failure(trace, 0, 'two', 'it is twice one')\n"
    )
    folder = hand_in(tmp_path / "ada", "def double(n): return 0\n")
    score = graded(course, folder, public_only=True)
    lines = [line.strip() for line in line_of(score, "test_run").message.splitlines()]
    assert lines[0] == "step 0: expected two"
    assert lines[1].startswith("yours: prefill step at clock 0; ")
    assert lines[-2:] == [
        "why: it is twice one",
        f'see it: from nanoinfer import Trace; Trace.load("{folder}/failed-test_run.jsonl").explore(step=0)',
    ]
    assert len(Trace.load(folder / "failed-test_run.jsonl").steps) > 0
    hand_in(folder, "def double(n): return 2\n")
    assert graded(course, folder, public_only=True).percent == 100
    assert not list(folder.glob("failed-*"))


class Colliding(BlockManager):
    def compute_hash(self, token_ids, prefix=NO_HASH):
        return sum(token_ids) % 3


class ForgetsTwins(QuietManager, Colliding):
    """A block that is superseded under its hash loses it, where nanoinfer's own keeps it."""

    def hash_blocks(self, seq):
        super().hash_blocks(seq)
        for block in self.blocks:
            if self.hash_to_block_id.get(block.hash) != block.block_id:
                block.hash = NO_HASH


def test_what_becomes_of_the_hash_of_a_superseded_block_is_its_managers_affair():
    run = {"prompts": [prompt(9), prompt(9, 1), prompt(20, 2)], "sampling_params": params(2), "arrivals": [0, 1, 5]}
    trace = run_student(**run, **limits(4, 8), block_manager_cls=ForgetsTwins)
    assert any(event.kind == "evict_hash" and event.step < 5 for event in trace.events)
    expect_same_decisions(trace, simulate(**run, **limits(4, 8), block_manager_cls=Colliding), "it is not found")


# ---- what goes wrong in a run -----------------------------------------------------------------


class Forgetful(Scheduler):
    """Loses those who have decoded."""

    def schedule(self):
        plan = super().schedule()
        if plan.phase == "decode":
            self.running.clear()
        return plan


def test_a_lost_sequence_is_named():
    with pytest.raises(AssertionError, match=r"after schedule\(\) of step 1, sequence 0 is lost: neither in waiting"):
        run_student([prompt(3)], params(3), scheduler_cls=Forgetful)


def test_a_method_that_is_not_written_yet_is_named():
    class Half(BlockManager):
        def allocate(self, seq, num_cached_blocks):
            raise NotImplementedError("to be written")

    with pytest.raises(NotImplementedError, match=r"Half\.allocate is not implemented yet") as raised:
        run_student([prompt(3)], params(3), block_manager_cls=Half)
    assert len(raised.traceback) == 3, "the test, run_student and run_bounded, not the engine below them"
    assert describe(raised.value).endswith("Half.allocate is not implemented yet")


# ---- answers that are nanoinfer's own ----------------------------------------------------------

OWN = {
    "the class itself": "from nanoinfer import BlockManager\n",
    "a subclass": "import nanoinfer\nclass BlockManager(nanoinfer.BlockManager): pass\n",
    "a wrapper": "from nanoinfer import BlockManager as B\nclass BlockManager:\n    inner = B(1, 1)\n",
}


@pytest.mark.parametrize("name", OWN)
def test_nanoinfers_own_class_is_no_answer(tmp_path, name):
    course = make_course(tmp_path / "course")
    text = "import pytest\n\n@pytest.mark.points(1)\ndef test_m(impl):\n    impl.BlockManager\n"
    (course.tests / "test_a2.py").write_text(text)
    score = grade(hand_in(tmp_path / "ada", OWN[name]), Grading(course, "a2"))
    assert score.score == 0
    assert "nanoinfer's own BlockManager; write the class yourself" in score.error
    assert grade(hand_in(tmp_path / "bob", "class BlockManager: pass\n"), Grading(course, "a2")).percent == 100


def test_a_class_that_is_not_there_is_told_with_the_cell_that_failed(tmp_path):
    course = make_course(tmp_path / "course")
    (course.tests / "test_a2.py").write_text("import pytest\n\n@pytest.mark.points(1)\ndef test_m(impl): pass\n")
    score = grade(hand_in(tmp_path / "ada", "class Manager: pass\n"), Grading(course, "a2"))
    assert (score.score, score.error) == (0, "the submission has no class BlockManager")
    cells = [{"cell_type": "code", "source": "1 / 0\nclass BlockManager: pass"}]
    score = grade(hand_in(tmp_path / "bob", json.dumps({"cells": cells}), "a2.ipynb"), Grading(course, "a2"))
    assert score.error.startswith("the submission has no class BlockManager; cell 1 fails with ZeroDivisionError")
