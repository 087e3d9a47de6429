"""Documents: the kinds of chats of the corpus and how often each comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .chats import (
    Turn,
    chat_text,
    exchange,
    fact_turns,
    introduction_turns,
    name_question_turns,
    skill_turns,
    story_question_turns,
    unknown_turns,
)
from .draw import Draw
from .skills import boxes, repeating, whereabouts
from .stories import tell_another_story, tell_story
from .words import COLORS, NAMES, THINGS


def story_document(draw: Draw) -> str:
    """A story on request, often with questions about it, at times with no chat around it."""
    story = tell_another_story(draw) if draw.chance(0.12) else tell_story(draw)
    turns = exchange(story.request, story.text)
    if draw.chance(0.5):
        turns += story_question_turns(draw, story, most=2)
    elif draw.chance(0.25):
        return story.text + "<|endoftext|>"
    return chat_text(draw, turns)


def reading_document(draw: Draw) -> str:
    """A story in the prompt and one question about it."""
    story = tell_story(draw)
    question, answer = draw.choice(story.questions)
    return chat_text(draw, exchange(f"Read this story and answer the question.\n\n{story.text}\n\n{question}", answer))


def name_document(draw: Draw) -> str:
    """A name that is asked for again, after up to two other questions."""
    name = draw.choice(NAMES)
    turns = introduction_turns(draw, name)
    for _ in range(draw.randint(0, 2)):
        turns += skill_turns(draw)
    return chat_text(draw, turns + name_question_turns(draw, name))


def skill_document(draw: Draw) -> str:
    """One to three small skills."""
    return chat_text(draw, [turn for _ in range(draw.randint(1, 3)) for turn in skill_turns(draw)])


def fact_document(draw: Draw) -> str:
    """One to three facts."""
    return chat_text(draw, [turn for _ in range(draw.randint(1, 3)) for turn in fact_turns(draw)])


def unknown_document(draw: Draw) -> str:
    """A question the model cannot answer, alone, before a skill or after a fact."""
    turns = unknown_turns(draw)
    if draw.chance(0.3):
        turns += skill_turns(draw)
    elif draw.chance(0.3):
        turns = fact_turns(draw) + turns
    return chat_text(draw, turns)


def long_document(draw: Draw) -> str:
    """A chat of many turns that begins with a name and may ask for it at any time."""
    name = draw.choice(NAMES)
    turns = introduction_turns(draw, name)
    for _ in range(draw.randint(4, 12)):
        kind = draw.randrange(10)
        if kind < 4:
            turns += skill_turns(draw)
        elif kind < 6:
            story = tell_story(draw)
            turns += exchange(story.request, story.text) + story_question_turns(draw, story, most=3)
        elif kind < 8:
            turns += fact_turns(draw)
        elif kind < 9:
            turns += unknown_turns(draw)
        else:
            turns += name_question_turns(draw, name)
    return chat_text(draw, turns)


# (upper end of its share of all documents, kind)
DOCUMENT_KINDS: tuple[tuple[float, Callable[[Draw], str]], ...] = (
    (0.42, story_document),
    (0.50, reading_document),
    (0.57, name_document),
    (0.70, skill_document),
    (0.82, fact_document),
    (0.91, unknown_document),
    (1.00, long_document),
)


def ordinary_document(draw: Draw) -> str:
    """A document of a random kind."""
    share = draw.random()
    return next(kind for upper, kind in DOCUMENT_KINDS if share < upper)(draw)


def recall_document(draw: Draw) -> str:
    """A short document whose answers must be copied from it.

    Dense practice in looking back into the context, where a story asks for it only now and then.
    """
    turns: list[Turn] = []
    for _ in range(draw.randint(1, 3)):
        kind = draw.randrange(4)
        if kind == 0:
            turns += exchange(*repeating(draw, THINGS + NAMES + COLORS, most=8))
        elif kind == 1:
            turns += exchange(*boxes(draw, fewest=2, most=6))
        elif kind == 2:
            turns += exchange(*whereabouts(draw, fewest=2, most=6))
        else:
            name = draw.choice(NAMES)
            turns += exchange(f"My name is {name}.", f"Nice to meet you, {name}!")
            turns += exchange("What is my name?", f"Your name is {name}.")
    return chat_text(draw, turns)


def corpus(documents: int, seed: int, recall: bool = False) -> Iterator[str]:
    """The documents of a seed: the same arguments always give the same texts."""
    draw = Draw(seed)
    make = recall_document if recall else ordinary_document
    return (make(draw) for _ in range(documents))
