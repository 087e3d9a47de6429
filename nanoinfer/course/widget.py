"""A question with its answer field as a widget. Only this module needs anywidget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from nanoinfer.course.markup import inline, paragraphs
from nanoinfer.course.question import OPEN, Question


class QuestionWidget(anywidget.AnyWidget):
    """The page sets `given`; the kernel answers in `feedback`. So the page does not know the answer before."""

    _esm = Path(__file__).with_name("widget.js")
    _css = Path(__file__).with_name("widget.css")
    question = traitlets.Unicode().tag(sync=True)
    options: traitlets.List[dict[str, str]] = traitlets.List().tag(sync=True)
    given = traitlets.Unicode("").tag(sync=True)
    feedback = traitlets.Dict().tag(sync=True)  # kind, sentence and, unless it is still open, why (HTML)

    def __init__(self, question: Question) -> None:
        self._question = question
        options = [{"value": option, "html": inline(option)} for option in question.options or ()]
        super().__init__(question=inline(question.text), options=options)
        self.observe(self._judge, "given")

    def _judge(self, change: Any) -> None:
        if not change["new"]:
            return
        feedback = self._question.judge(change["new"])
        why = "" if feedback.kind == OPEN else paragraphs(self._question.why)
        self.feedback = {"kind": feedback.kind, "words": inline(feedback.words), "why": why}

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        return {**data, "text/html": self._question._repr_html_(), "text/plain": repr(self._question)}, metadata
