"""A policy is a class; a name chooses it; the two never contradict each other."""

import re
from pathlib import Path

import pytest
from kit.helpers import check_pool, config, limits, live_state, make_core, params, prompt

import nanoinfer.core
from nanoinfer import EngineConfig, Scheduler, Sequence, simulate
from nanoinfer.core.policies import POLICIES, MixedScheduler
from nanoinfer.core.scheduler import policy_name, scheduler_class


class Own(Scheduler):
    """A policy that is registered nowhere: it decides as its parent does."""

    def schedule(self):
        return super().schedule()


class OwnMixed(MixedScheduler):
    pass


class Foreign:
    """A class of somebody's own, with the methods of Scheduler."""

    def __init__(self, *arguments):
        self.inner = Scheduler(*arguments)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __setattr__(self, name, value):
        super().__setattr__(name, value) if name == "inner" else setattr(self.inner, name, value)


@pytest.fixture
def mine(monkeypatch):
    """A policy added by name, as a notebook would add it."""

    class Mine(Scheduler):
        def schedule(self):
            return super().schedule()

    monkeypatch.setitem(POLICIES, "mine", Mine)
    return Mine


def run(**more):
    return simulate([prompt(6), prompt(5, 1)], params(3), **limits(4, 16) | more)


@pytest.mark.parametrize(("policy", "name"), [("prefill_first", "scheduler.Scheduler"), ("mixed", "MixedScheduler")])
def test_a_name_chooses_the_class_and_the_trace_names_it(policy, name):
    trace = run(policy=policy)
    assert trace.header.scheduler_cls.endswith(name)
    assert trace.config.policy == policy


def test_a_policy_added_by_name_is_used_plain_and_overlapped(mine):
    for overlap in (False, True):
        trace = run(policy="mine", overlap=overlap)
        assert trace.header.scheduler_cls.endswith("Mine")
        assert [step.decision for step in trace.steps] == [step.decision for step in run(overlap=overlap).steps]


@pytest.mark.parametrize(("cls", "policy"), [(None, "prefill_first"), (Own, "prefill_first"), (OwnMixed, "mixed")])
def test_a_class_brings_the_policy_it_inherits_from(cls, policy):
    trace = run(scheduler_cls=cls)
    assert trace.config.policy == policy
    assert trace.header.scheduler_cls.endswith((cls or Scheduler).__name__)
    assert [s.decision for s in trace.steps] == [s.decision for s in run(policy=policy).steps]


def test_a_class_of_its_own_needs_no_name():
    assert run(scheduler_cls=Foreign).header.scheduler_cls.endswith("Foreign")
    assert policy_name(Foreign) == "prefill_first"


@pytest.mark.parametrize(
    ("cls", "policy"),
    [(Own, "mixed"), (Scheduler, "mixed"), (MixedScheduler, "prefill_first"), (OwnMixed, "prefill_first")],
)
def test_a_class_and_the_name_of_another_policy_are_refused(cls, policy):
    message = f"policy '{policy}' is {POLICIES[policy].__name__}, but the scheduler is {cls.__name__}"
    for refused in (
        lambda: run(scheduler_cls=cls, policy=policy),
        lambda: cls(config(4, 8, policy=policy)),
        lambda: make_core(config(4, 8, policy=policy), scheduler_cls=cls),
    ):
        with pytest.raises(ValueError, match=message):
            refused()


def test_a_class_of_its_own_and_a_name_are_refused():
    with pytest.raises(ValueError, match="policy 'mixed' is MixedScheduler, but the scheduler is Foreign"):
        run(scheduler_cls=Foreign, policy="mixed")


def test_a_class_that_has_a_name_is_refused_under_the_name_of_its_parent(mine):
    with pytest.raises(ValueError, match="policy 'prefill_first' is Scheduler, but the scheduler is Mine"):
        mine(config(4, 8))
    mine(config(4, 8, policy="mine"))


def test_two_names_of_one_class_both_mean_it(mine, monkeypatch):
    monkeypatch.setitem(POLICIES, "mine-too", mine)
    assert scheduler_class("mine", mine) is scheduler_class("mine-too", mine) is mine


def test_an_unknown_name_is_refused_with_those_that_are_known():
    for refused in (lambda: run(policy="lifo"), lambda: Scheduler(config(4, 8, policy="lifo"))):
        with pytest.raises(ValueError, match=f"policy must be one of {', '.join(POLICIES)}, got 'lifo'"):
            refused()


def test_a_scheduler_by_hand_needs_a_pool():
    with pytest.raises(ValueError, match="num_kvcache_blocks=64"):
        Scheduler(EngineConfig())


# ---- taking a plan back -------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_an_undone_plan_leaves_the_queues_and_blocks_of_before(policy):
    """But for the order of the free list: everything it admitted waits again, in the old order, without blocks."""
    scheduler = scheduler_class(policy)(config(4, 16, policy=policy))
    for i, length in enumerate((6, 5, 9)):
        scheduler.add(Sequence(i, prompt(length, i), params(3), 4))
    before = live_state(scheduler)
    scheduler.undo(scheduler.schedule())
    after = live_state(scheduler)
    assert sorted(after.pop("free_blocks")) == before.pop("free_blocks")
    assert after == before
    check_pool(scheduler)


def test_an_undone_middle_chunk_keeps_the_chunks_before_it():
    scheduler = Scheduler(config(4, 16, B=8))
    scheduler.add(Sequence(0, prompt(20), params(3), 4))
    scheduler.postprocess(scheduler.schedule(), [0])
    scheduler.undo(scheduler.schedule())
    (row,) = scheduler.schedule().rows
    assert (row.num_computed, row.num_scheduled, row.chunk) == (8, 8, (2, 3))


def test_a_request_aborted_while_its_plan_ran_is_not_undone():
    scheduler = Scheduler(config(4, 16))
    scheduler.add(Sequence(0, prompt(6), params(3), 4))
    plan = scheduler.schedule()
    scheduler.abort(0)
    scheduler.undo(plan)
    assert scheduler.is_finished()
    check_pool(scheduler)


# ---- the wing can be left out --------------------------------------------------------------


def test_the_core_speaks_of_overlap_in_its_wing_alone():
    core = Path(nanoinfer.core.__file__).parent
    files = [*core.glob("*.py"), *(core / "policies").glob("*.py")]
    assert len(files) > 8
    words = {path.name: re.findall(r"(?i)\w*(?:overlap|pending)\w*", path.read_text()) for path in files}
    assert not {name: found for name, found in words.items() if found}
