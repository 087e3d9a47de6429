"""Predict, then reveal: the reader commits to an answer before the recording shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nanoinfer.course.question import Question
from nanoinfer.extras import missing, require


class StaticQuestion:
    """A question for a notebook without widgets: the answer is in a closed box below it."""

    def __init__(self, question: Question) -> None:
        self.question = question

    def _repr_html_(self) -> str:
        return self.question.html

    def __repr__(self) -> str:
        return self.question.plain


def predict(
    question: str,
    answer: str | float | Callable[[], str | float],
    options: Sequence[str] | None = None,
    why: str = "",
    tolerance: float = 0,
) -> None:
    """Show a question in a notebook; its answer stays hidden until the reader has given one.

    Args:
        question: what to ask. `code` stands between backticks, here and below.
        answer: one of `options`, or a number, or a function that returns it once the reader has answered.
        options: to choose from; without them the reader types a number.
        why: shown with the answer.
        tolerance: how far off a number may be.

    Raises:
        ValueError: the answer is none of the options, or there are none and it is no number.
    """
    require("predict()", "IPython")
    from IPython.display import display

    display(_view(Question(question, answer, options, why, tolerance)))  # type: ignore[no-untyped-call]


def _view(question: Question) -> Any:
    if missing("anywidget"):
        return StaticQuestion(question)
    from nanoinfer.course.widget import QuestionWidget

    return QuestionWidget(question)
