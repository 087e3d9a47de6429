"""Assignment 7, public tests: for each kind of fault three runs, which differ from student to student."""

import pytest

from nanoinfer.course.kits.a7_faults import RULES, expect_diagnosis, faultless_run, faulty_run

HINTS = {
    "over_budget": "Add up num_scheduled over the rows of a prefill step; the row that goes over the limit is the one.",
    "second_cut": "Look at every row but the first: does it reach the end of its sequence?",
    "skipped_head": "Keep waiting by yourself (arrive, run, preempt); an admit must be for its head.",
    "wrong_victim": "Keep running by yourself (run, preempt, finish); a preempt must be for its last entry.",
    "lost_token": "A row whose computed + scheduled tokens are all its sequence has must have a token_id.",
    "early_block": "At an allocate, the blocks before it must be too few for the tokens the sequence has.",
    "leaked_block": "After the events of a step, who finished or was preempted in it must hold no block.",
    "stale_hash": "Keep which blocks are registered; evict_hash must come before the allocate of such a block.",
    "early_hash": "A block may be registered if the sequence's computed + scheduled tokens reach its end.",
    "wrong_hit": "Keep for each registered block all tokens up to its end, and compare them at a reuse or share.",
}
NOTHING = "Nothing is wrong here: a victim, a middle chunk, a shared block or a full pool is no fault."


def find(impl, kind, variant):
    """One run with one fault of this kind, which is the only suspect."""
    expect_diagnosis(impl.diagnose, faulty_run(kind, variant.randrange(10**6)), {kind})


@pytest.mark.points(4, part="admission", hint=HINTS["over_budget"])
@pytest.mark.parametrize("case", range(3))
def test_over_budget(impl, variant, case):
    """A prefill step has more tokens than the budget allows."""
    find(impl, "over_budget", variant)


@pytest.mark.points(5, part="admission", hint=HINTS["second_cut"])
@pytest.mark.parametrize("case", range(3))
def test_second_cut(impl, variant, case):
    """A sequence is cut that is not the first of its batch."""
    find(impl, "second_cut", variant)


@pytest.mark.points(5, part="admission", hint=HINTS["skipped_head"])
@pytest.mark.parametrize("case", range(3))
def test_skipped_head(impl, variant, case):
    """Somebody is admitted before the head of waiting."""
    find(impl, "skipped_head", variant)


@pytest.mark.points(5, part="queues", hint=HINTS["wrong_victim"])
@pytest.mark.parametrize("case", range(3))
def test_wrong_victim(impl, variant, case):
    """Somebody is preempted who is not the last of running."""
    find(impl, "wrong_victim", variant)


@pytest.mark.points(5, part="queues", hint=HINTS["lost_token"])
@pytest.mark.parametrize("case", range(3))
def test_lost_token(impl, variant, case):
    """A row that completes its sequence has no token."""
    find(impl, "lost_token", variant)


@pytest.mark.points(6, part="blocks", hint=HINTS["early_block"])
@pytest.mark.parametrize("case", range(3))
def test_early_block(impl, variant, case):
    """A block is taken one step before a token needs it."""
    find(impl, "early_block", variant)


@pytest.mark.points(5, part="blocks", hint=HINTS["leaked_block"])
@pytest.mark.parametrize("case", range(3))
def test_leaked_block(impl, variant, case):
    """Somebody finishes or is preempted and keeps a block."""
    find(impl, "leaked_block", variant)


@pytest.mark.points(5, part="hashes", hint=HINTS["stale_hash"])
@pytest.mark.parametrize("case", range(3))
def test_stale_hash(impl, variant, case):
    """A block is taken for new content and is still found under its old hash."""
    find(impl, "stale_hash", variant)


@pytest.mark.points(6, part="hashes", hint=HINTS["early_hash"])
@pytest.mark.parametrize("case", range(3))
def test_early_hash(impl, variant, case):
    """A block is registered before its tokens are computed."""
    find(impl, "early_hash", variant)


@pytest.mark.points(6, part="hashes", hint=HINTS["wrong_hit"])
@pytest.mark.parametrize("case", range(3))
def test_wrong_hit(impl, variant, case):
    """A prompt is given a block that holds other tokens."""
    find(impl, "wrong_hit", variant)


@pytest.mark.points(4, part="all", hint=NOTHING)
def test_faultless_runs(impl, variant):
    """Runs with chunks, hits and preemptions in which nothing is wrong: None."""
    for _ in range(8):
        expect_diagnosis(impl.diagnose, faultless_run(variant.randrange(10**6)))


@pytest.mark.points(4, part="all", hint="Give the fault that comes first, and no other for what follows from it.")
def test_every_kind_a_suspect(impl, variant):
    """One run of each kind, and you are not told which."""
    assert set(HINTS) == set(RULES)
    for kind in RULES:
        expect_diagnosis(impl.diagnose, faulty_run(kind, variant.randrange(10**6)))
