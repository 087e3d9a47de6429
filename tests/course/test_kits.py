"""The kits of the assignments: what they refuse, and what they may know of the grader and of the core."""

import ast
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import FunctionType

import pytest
from kit.helpers import params, prompt
from kit.small_course import hand_in

import nanoinfer.course
from nanoinfer import Scheduler
from nanoinfer.core.plan import Row, StepPlan
from nanoinfer.core.policies import MixedScheduler
from nanoinfer.course.grading.assignments import CHECKOUT, Course
from nanoinfer.course.grading.grade import Grading, grade
from nanoinfer.course.kits.a5_fairness import run_policy
from nanoinfer.reasons import Stop

COURSE = Path(nanoinfer.course.__file__).parent


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def test_the_grader_knows_no_kit():
    """A new assignment needs a kit at most, and no change of the machine that grades it."""
    for path in (COURSE / "grading").glob("*.py"):
        imports = [node.module for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom)]
        assert not [name for name in imports if name and name.startswith("nanoinfer.course.kits")], path.name


def test_the_kits_use_the_public_methods_of_the_core():
    """A private method of the core may be renamed without a look at the assignments."""
    for path in (COURSE / "kits").glob("*.py"):
        tree = parsed(path)
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")}
        defined_anew = own & {name for cls in (Scheduler, MixedScheduler, nanoinfer.BlockManager) for name in vars(cls)}
        private = {name for name in defined_anew if name.startswith("_") and not name.startswith("__")}
        assert private | {name for name in used - own if not name.startswith("__")} == set(), path.name


# ---- assignment 5: a policy that is not the student's own ---------------------------------------


class Inherits(Scheduler):
    pass


class CallsSuper(Scheduler):
    def schedule(self):
        return super().schedule()


class CallsTheClass(Scheduler):
    def schedule(self):
        return Scheduler.schedule(self)


class InheritsALoop(Scheduler):
    def schedule(self):
        seqs, stop = self._prefill()
        return StepPlan("prefill", [self.prefill_row(seq) for seq in seqs], stop, Stop("PHASE_EXCLUSIVE"))


class HasAnAlias(InheritsALoop):
    mine = Scheduler._prefill

    def _prefill(self):
        return self.mine()


class AsksTheOther(Scheduler):
    def schedule(self):
        rows = []
        stop = MixedScheduler._admit(self, rows)
        return StepPlan("prefill", rows, stop, Stop("RUNNING_EMPTY"))

    def _full(self, rows, num_batched_tokens):
        return None


class HasACopy(Scheduler):
    schedule = FunctionType(Scheduler.schedule.__code__, Scheduler.schedule.__globals__)


class Catches(Scheduler):
    def schedule(self):
        with suppress(BaseException):
            return super().schedule()
        return super().schedule()


class AsksAnother(Scheduler):
    def schedule(self):
        other = Scheduler(self.config)
        vars(other).update(vars(self))
        return other.schedule()


class DecodesWithOurs(Scheduler):
    def schedule(self):
        while self.waiting:
            seq = self.waiting[0]
            self.block_manager.allocate(seq, 0)
            seq.num_scheduled_tokens = len(seq)
            seq.status = type(seq.status).RUNNING
            self.running.append(self.waiting.popleft())
            self.recorder.run(seq.seq_id)
            return StepPlan("prefill", [self.prefill_row(seq)], Stop("QUEUE_EMPTY"), Stop("PHASE_EXCLUSIVE"))
        seqs, stop, preempted = Scheduler._decode(self)
        return StepPlan("decode", [Row(seq) for seq in seqs], Stop("QUEUE_EMPTY"), stop, preempted)


class PlansAhead(DecodesWithOurs):
    ahead = None

    def schedule(self):
        if self.ahead is None:
            return super().schedule()
        return self.ahead

    def postprocess(self, plan, token_ids):
        super().postprocess(plan, token_ids)
        self.ahead = Scheduler.schedule(self)


class UsesAThread(Scheduler):
    def schedule(self):
        plans = []
        thread = Thread(target=lambda: plans.append(Scheduler.schedule(self)))
        thread.start()
        thread.join()
        return plans[0]


class SwitchesTheCheckOff(Scheduler):
    def schedule(self):
        import sys

        sys.setprofile(None)
        return super().schedule()


EVASIONS = {
    Inherits: "Scheduler.schedule",
    CallsSuper: "Scheduler.schedule",
    CallsTheClass: "Scheduler.schedule",
    InheritsALoop: "Scheduler._prefill",
    HasAnAlias: "Scheduler._prefill",
    AsksTheOther: "MixedScheduler._admit",
    HasACopy: "Scheduler.schedule",
    Catches: "Scheduler.schedule",
    AsksAnother: "Scheduler.schedule",
    DecodesWithOurs: "Scheduler._decode",
    PlansAhead: "Scheduler.schedule",
    UsesAThread: "Scheduler.schedule",
    SwitchesTheCheckOff: "sys.setprofile",
}


@pytest.mark.parametrize("policy", EVASIONS, ids=lambda policy: policy.__name__)
def test_a_policy_that_is_nanoinfers_own_is_refused(policy):
    with pytest.raises(AssertionError, match=f"the policy calls nanoinfer's own {EVASIONS[policy]};"):
        run_policy(policy, 2, prompts=[prompt(3)], sampling_params=params(3))


def test_a_policy_that_loses_a_sequence_is_told_which():
    class Loses(Scheduler):
        def schedule(self):
            self.waiting.clear()
            return StepPlan("prefill", [], Stop("QUEUE_EMPTY"), Stop("PHASE_EXCLUSIVE"))

    with pytest.raises(AssertionError, match=r"after schedule\(\) of step 0, sequence 0 is lost"):
        run_policy(Loses, 2, prompts=[prompt(3)], sampling_params=params(3))


def test_a_submission_that_is_nanoinfers_own_has_no_points(tmp_path):
    text = "from nanoinfer import Scheduler\n\n\nclass FairScheduler(Scheduler):\n    patience = 4\n"
    score = grade(hand_in(tmp_path, text), Grading(Course(CHECKOUT), "a5"))
    assert (score.score, score.error) == (0, "")
