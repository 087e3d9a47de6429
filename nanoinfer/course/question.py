"""Predict, then reveal: the reader commits to an answer before the recording shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nanoinfer.course.markup import details, inline, paragraphs
from nanoinfer.extras import missing, require

RIGHT, WRONG, OPEN = "right", "wrong", "open"
NOT_YET = "The answer needs the cells below. Run them, then press Check again."
SEEN_BELOW = "The cells below show the answer."


class Feedback(NamedTuple):
    """What became of an answer: RIGHT, WRONG or OPEN (cannot be told yet), and a sentence."""

    kind: str
    words: str


@dataclass(frozen=True, repr=False)
class Question:
    """A question that the reader answers before the answer is shown: for `predict`, which says what the fields mean.

    Without widgets it shows itself, its answer in a closed box.
    """

    text: str
    answer: Any
    options: Sequence[str] | None = None
    why: str = ""
    tolerance: float = 0

    def __post_init__(self) -> None:
        if self.options is not None and len(self.options) < 2:
            raise ValueError(f"options must be at least 2 to choose from, got {list(self.options)}")
        if not callable(self.answer):
            self._checked(self.answer)

    def _checked(self, answer: Any) -> Any:
        if self.options is not None and answer not in self.options:
            raise ValueError(f"answer must be one of the options {list(self.options)}, got {answer!r}")
        if self.options is None and (isinstance(answer, str) or not hasattr(answer, "__float__")):
            raise ValueError(f"answer must be a number when there are no options, got {answer!r}")
        return answer

    def solution(self) -> Any:
        """The right answer. Raises what the function raises if the answer is one."""
        return self._checked(self.answer()) if callable(self.answer) else self.answer

    def judge(self, given: str) -> Feedback:
        """Compare what the reader chose or typed with the answer."""
        try:
            answer = self.solution()
        except NameError:  # a variable of a cell that has not run
            return Feedback(OPEN, NOT_YET)
        if self._equal(given, answer):
            return Feedback(RIGHT, f"Right: {answer}.")
        return Feedback(WRONG, f"Not this time. You said {given}, and it is {answer}.")

    def _equal(self, given: str, answer: str | float) -> bool:
        if self.options is not None:
            return given == answer
        return bool(abs(float(given) - float(answer)) <= self.tolerance)

    def _repr_html_(self) -> str:
        """The question and, closed, its answer: for pages without a kernel."""
        options = "".join(f"<li>{inline(option)}</li>" for option in self.options or ())
        shown = f"<ul>{options}</ul>" if options else ""
        told = SEEN_BELOW if callable(self.answer) else str(self.answer)
        body = f"<p><b>{inline(told)}</b></p>{paragraphs(self.why) if self.why else ''}"
        return f"<div><p><b>Predict:</b> {inline(self.text)}</p>{shown}{details('Show the answer', body)}</div>"

    def __repr__(self) -> str:
        """The question alone: for terminals."""
        return "\n".join([f"Predict: {self.text}", *(f"  ( ) {option}" for option in self.options or ())])


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

    view: Any = Question(question, answer, options, why, tolerance)
    if not missing("anywidget"):
        from nanoinfer.course.widget import QuestionWidget

        view = QuestionWidget(view)
    display(view)  # type: ignore[no-untyped-call]
