import subprocess
import sys

import pytest

from nanoinfer.course import hint
from nanoinfer.course.question import OPEN, RIGHT, WRONG, Question, predict


def test_a_choice_is_judged_by_its_text():
    question = Question("Who waits?", "B", ["A", "B"])
    assert question.judge("B").kind == RIGHT
    feedback = question.judge("A")
    assert feedback.kind == WRONG
    assert feedback.words == "Not this time. You said A, and it is B."


@pytest.mark.parametrize(
    ("given", "kind"), [("9", RIGHT), ("11", RIGHT), ("11.5", WRONG), ("8", WRONG), ("-10", WRONG)]
)
def test_a_number_is_judged_with_its_tolerance(given, kind):
    assert Question("How many?", 10, tolerance=1).judge(given).kind == kind


def test_without_tolerance_a_number_must_be_met():
    assert Question("How many?", 10).judge("10").kind == RIGHT
    assert Question("How many?", 10).judge("10.5").kind == WRONG


def test_a_function_is_asked_only_when_the_reader_has_answered():
    asked = []
    question = Question("How many?", lambda: asked.append(1) or 3)
    assert "3" not in question._repr_html_()
    assert not asked
    assert question.judge("3").kind == RIGHT
    assert asked == [1]


def test_an_answer_that_needs_a_later_cell_stays_open():
    names = {}
    question = Question("How many steps?", eval("lambda: steps", names))
    assert question.judge("4").kind == OPEN
    names["steps"] = 4
    assert question.judge("4").kind == RIGHT


@pytest.mark.parametrize(
    ("answer", "options", "words"),
    [
        ("C", ["A", "B"], r"one of the options \['A', 'B'\], got 'C'"),
        ("A", None, "must be a number when there are no options, got 'A'"),
        ("A", ["A"], "at least 2"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(answer, options, words):
    with pytest.raises(ValueError, match=words):
        Question("Which?", answer, options)


def test_a_function_with_an_impossible_answer_is_refused_when_asked():
    with pytest.raises(ValueError, match="one of the options"):
        Question("Which?", lambda: "C", ["A", "B"]).judge("A")


def test_the_static_form_hides_the_answer_in_a_closed_box():
    html = Question("Is `a < b`?", "yes", ["yes", "no"], why="First.\n\nSecond.")._repr_html_()
    before, _, inside = html.partition("<details")
    assert "<code>a &lt; b</code>" in before
    assert "<li>yes</li><li>no</li>" in before
    assert "open" not in inside.partition(">")[0]
    assert "<b>yes</b>" in inside
    assert "<p>First.</p><p>Second.</p>" in inside


def test_the_text_form_does_not_tell():
    assert repr(Question("How many?", 17, why="It is 17.")) == "Predict: How many?"


def test_a_hint_is_closed_and_escaped():
    html = hint("Look at `trace.steps` & <count>.", title="Hint 1")._repr_html_()
    assert html.startswith("<details ")
    assert " open" not in html.partition(">")[0]
    assert "<b>Hint 1</b>" in html
    assert "<code>trace.steps</code> &amp; &lt;count&gt;." in html


def test_without_anywidget_the_question_shows_in_its_static_form(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "nanoinfer.course.widget", raising=False)
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    assert predict("How many?", 3) is None
    assert [type(view) for view in shown] == [Question]


def test_importing_the_course_loads_no_widgets():
    code = "import nanoinfer.course, sys; print(sorted({'anywidget', 'ipywidgets', 'IPython'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
