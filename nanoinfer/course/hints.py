"""Hints that stay closed until somebody opens them."""

from __future__ import annotations

from nanoinfer.course.markup import details, paragraphs


class Hint:
    """A text that a notebook shows closed, with only its title to see."""

    def __init__(self, text: str, title: str) -> None:
        self.text, self.title = text, title

    def _repr_html_(self) -> str:
        return details(self.title, paragraphs(self.text))

    def __repr__(self) -> str:
        return f"<{self.title}: open it in a notebook>"


def hint(text: str, title: str = "Hint") -> Hint:
    """A closed box with `text`, for the end of a notebook cell. `code` stands between backticks."""
    return Hint(text, title)
