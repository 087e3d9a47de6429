"""What run_student records of a class that records nothing is what happened, or it says why it cannot be recorded."""

from pathlib import Path
from runpy import run_path

import pytest

from nanoinfer.course.grading import run_student
from nanoinfer.course.kits.requests import limits, prompt, tokens

SOLUTIONS = Path(__file__).parents[1] / "assignments" / "solutions"
PRESSED = {"prompts": [prompt(8, i) for i in range(4)], "sampling_params": tokens(6), **limits(4, 8)}


@pytest.fixture
def scheduler_cls():
    return run_path(str(SOLUTIONS / "a4.py"))["Scheduler"]


def test_a_leak_shows_in_the_state(scheduler_cls):
    class Leaking(scheduler_cls):
        def __init__(self, *args):
            super().__init__(*args)
            self.block_manager.deallocate = lambda seq: None

    trace = run_student([prompt(5)], tokens(2), scheduler_cls=Leaking, **limits(4, 4))
    assert trace.state(-1).free_blocks == [2, 3]
    assert trace.state(-1).ref_counts == [1, 1, 0, 0]


def test_victims_at_the_back_are_refused(scheduler_cls):
    """No event says that a victim goes to the end of waiting: a recording would show a queue that never was."""

    class Back(scheduler_cls):
        def preempt(self, seq, on_behalf_of=None):
            record = super().preempt(seq, on_behalf_of)
            self.waiting.append(self.waiting.popleft())
            return record

    with pytest.raises(AssertionError, match=r"after schedule\(\) of step 1 waiting is \[3, 2\], expected \[2, 3\]"):
        run_student(**PRESSED, scheduler_cls=Back)


def test_a_failing_step_is_told_by_its_own_error(scheduler_cls):
    """The engine undoes a step that fails, and for that calls a preempt() that may not be written yet."""

    class Unwritten(scheduler_cls):
        def postprocess(self, plan, token_ids):
            raise NotImplementedError("to be written")

        def preempt(self, seq, on_behalf_of=None):
            raise RuntimeError("must not be reached")

    with pytest.raises(NotImplementedError):
        run_student(**PRESSED, scheduler_cls=Unwritten)


def test_a_schedule_without_a_plan(scheduler_cls):
    class Silent(scheduler_cls):
        def schedule(self):
            super().schedule()

    with pytest.raises(TypeError, match=r"schedule\(\) must return a StepPlan, got None"):
        run_student(**PRESSED, scheduler_cls=Silent)
