"""A reason has one record; `explain`, the explorer and the why-catalogue say what it says."""

import re
from pathlib import Path

import pytest
from kit.helpers import limits, params, prompt

from nanoinfer import Scheduler, Trace, simulate
from nanoinfer.reasons import REASONS, Reason, Stop, StopReason, Waits, declare
from nanoinfer.trace.words import counted, fill, listed, sequences

PAGE = (Path(__file__).parents[2] / "docs" / "why.md").read_text(encoding="utf-8")


@pytest.fixture
def undo_declarations():
    before = dict(REASONS)
    yield
    REASONS.clear()
    REASONS.update(before)


def table_after(heading):
    """Rows of the first table under a heading, as lists of cells without backticks."""
    lines = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    rows = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|"]
    return rows[2:]


# ---- the catalogue ------------------------------------------------------------------------


def test_the_page_says_of_every_reason_what_its_record_says():
    """Operands, which sequences wait, and whether it is a refusal; a reason may stand in both tables."""
    admission, decode = table_after("Why admission ended"), table_after("Why decoding ended")
    told = {name: set() for name in REASONS}
    for name, operands, waits, *_ in admission + decode:
        assert operands == ", ".join(REASONS[name].operands), name
        told[name] |= {who for who in waits.split(", ") if who}
    assert told == {name: set(reason.waits) for name, reason in REASONS.items()}
    assert {row[0] for row in admission + decode} == set(REASONS), "each stands in a table"
    assert {row[0] for row in admission if row[3] == "yes"} == {r.name for r in REASONS.values() if r.refuses}
    names = [row[0] for row in admission]
    assert names == [reason for reason in StopReason if reason in names], "in the order in which they are tested"


def test_a_refusal_keeps_the_head_waiting():
    assert all(Waits.HEAD in record.waits for record in REASONS.values() if record.refuses)


@pytest.mark.parametrize("reason", StopReason)
def test_every_sentence_can_be_said_with_the_operands_of_its_reason(reason):
    sentence = reason.record.sentence
    values = {name: 1000 + i for i, name in enumerate(reason.record.operands)}
    said, named = fill(sentence, values, "sequence 7"), re.findall(r"{(\w+)", sentence)
    assert all(str((values | {"who": "sequence 7"})[name]) in said for name in named)
    assert said[-1:] in (".", "")
    assert ("who" in named) == bool(reason.record.waits), "who waits is named"
    assert reason == reason.record.name == str(reason)
    assert StopReason(reason.record.name) is reason


def test_a_stop_equals_one_that_was_read_as_plain_text():
    assert str(Stop(StopReason.NO_BLOCKS, {"needed": 3, "free": 2})) == "NO_BLOCKS needed=3 free=2"
    assert Stop(StopReason.NO_BLOCKS, {"needed": 3}) == Stop("NO_BLOCKS", {"needed": 3})
    assert Stop("NO_BLOCKS").reason == StopReason.NO_BLOCKS


# ---- a policy's own reason ------------------------------------------------------------------


class Nap(Scheduler):
    """Calls it a nap when it decodes because no sequence waits."""

    def schedule(self):
        plan = super().schedule()
        if plan.stop.reason == StopReason.QUEUE_EMPTY and self.running:
            plan.stop = Stop("NAP", {"sheep": 3})
        return plan


def nap():
    return simulate([prompt(4)], params(4), scheduler_cls=Nap, **limits(4, 4))


def test_an_undeclared_reason_is_shown_as_it_was_recorded_and_is_no_refusal(tmp_path):
    nap().save(tmp_path / "t.jsonl")
    trace = Trace.load(tmp_path / "t.jsonl")  # of a policy that this process has never seen
    assert "Stopped: NAP sheep=3." in trace.explain(1).split("\n")
    assert not trace.steps[1].stop.refuses
    assert not any(step.stop.refuses for step in trace.steps)


@pytest.mark.usefixtures("undo_declarations")
def test_a_declared_reason_speaks_for_itself_everywhere():
    trace = nap()
    napped = [step.index for step in trace.steps if step.stop.reason == "NAP"]
    assert napped == [0, 1, 2, 3]
    name = declare(Reason("NAP", ("sheep",), sentence="Counted {sheep:sheep} before {who}.", refuses=True))
    assert (name, Stop(name).refuses) == ("NAP", True)
    assert "Counted 3 sheeps before the next one." in trace.explain(1).split("\n")
    assert [step.index for step in trace.steps if step.stop.refuses] == napped
    declare(Reason("NAP", ("sheep",), sentence="Said anew."))
    assert "Said anew." in trace.explain(1)


@pytest.mark.usefixtures("undo_declarations")
def test_those_behind_the_head_are_told_where_the_record_says_that_they_wait():
    waiting = simulate([prompt(4, i) for i in range(4)], params(2), **limits(4, 16, M=1))
    assert "behind" not in waiting.explain(0)
    waiting.steps[0].stop = Stop(declare(Reason("STUCK", sentence="Stuck at {who}.", waits=(Waits.BEHIND,))))
    assert "Stuck at sequence 1.\nSequences 2 and 3 behind it wait too" in waiting.explain(0)


def test_a_stop_without_the_operands_of_its_reason_is_shown_as_recorded():
    trace = simulate([prompt(4)], params(2), **limits(4, 4))
    trace.steps[0].stop = Stop("NO_BLOCKS", {"free": 2})
    assert "Stopped: NO_BLOCKS free=2." in trace.explain(0)


def test_a_sentence_that_names_no_operand_is_refused():
    with pytest.raises(ValueError, match=r"the sentence of NAP names .*sheeps.*; its operands are .*sheep"):
        Reason("NAP", ("sheep",), sentence="{sheeps} {who}")


def test_the_engines_own_names_cannot_be_declared_anew():
    with pytest.raises(ValueError, match="NO_BLOCKS is one of nanoinfer's own"):
        declare(Reason("NO_BLOCKS"))


# ---- words ----------------------------------------------------------------------------------


def test_lists_and_counts_read_as_english():
    assert [listed(range(n)) for n in range(4)] == ["", "0", "0 and 1", "0, 1 and 2"]
    assert [listed(range(n), most=3) for n in (3, 4, 9)] == ["0, 1 and 2", "0, 1 and 2 more", "0, 1 and 7 more"]
    assert [sequences([]), sequences([4]), sequences([4, 7])] == ["", "sequence 4", "sequences 4 and 7"]
    assert sequences(range(9)) == "sequences 0, 1, 2, 3, 4 and 4 more"
    assert (counted(1, "block"), counted(0, "block")) == ("1 block", "0 blocks")
    assert fill("{a:free block}, {a:is}, {b:is} {b}", {"a": 1, "b": 2}, "") == "1 free block, 1 is, 2 are 2"
