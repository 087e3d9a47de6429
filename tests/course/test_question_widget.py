import pytest

pytest.importorskip("anywidget")

from nanoinfer.course.question import Question
from nanoinfer.course.widget import QuestionWidget

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def widget():
    return QuestionWidget(Question("Who is `next`?", "B", ["A", "B"], why="B came by zeppelin."))


def test_the_page_learns_the_answer_only_after_it_was_given(widget):
    assert "zeppelin" not in str(widget.get_state())
    widget.given = "A"
    assert widget.feedback == {
        "kind": "wrong",
        "words": "Not this time. You said A, and it is B.",
        "why": "<p>B came by zeppelin.</p>",
    }


def test_open_feedback_does_not_tell_why():
    widget = QuestionWidget(Question("How many?", lambda: no_such_name, why="Because."))  # noqa: F821
    widget.given = "3"
    assert widget.feedback["kind"] == "open"
    assert widget.feedback["why"] == ""


def test_it_can_be_asked_again(widget):
    widget.given = "A"
    widget.given = ""
    assert "You said A," in widget.feedback["words"]
    widget.given = "B"
    assert widget.feedback["kind"] == "right"


def test_a_static_form_stands_beside_the_widget(widget):
    data, _ = widget._repr_mimebundle_()
    assert data.keys() >= {WIDGET, "text/html", "text/plain"}
    assert "<details" in data["text/html"]
    assert data["text/plain"] == "Predict: Who is `next`?\n  ( ) A\n  ( ) B"
