"""Stories as a user gets them: a request, the text, and questions that the text answers."""

from __future__ import annotations

from dataclasses import dataclass

from .characters import draw_child, draw_friend
from .draw import Draw, article
from .plots_adventure import building, lost_toy, lost_way, planting, race
from .plots_kindness import being_brave, rescue, sharing, telling_the_truth, trade
from .words import UNKNOWN_SUBJECTS

PLOTS = (lost_toy, sharing, being_brave, building, rescue, telling_the_truth, planting, lost_way, trade, race)

PLAIN_REQUESTS = ("Tell me a story.", "Write a short story.", "Can you tell me a story?", "I want to hear a story.")
TOPIC_REQUESTS = (
    "Tell me a story about {topic}.",
    "Write a short story about {topic}.",
    "Can you tell me a story about {topic}?",
    "Please write a story about {topic}.",
    "I would like a story about {topic}.",
    "Make up a story about {topic}.",
    "A story about {topic}, please.",
)
NAME_REQUESTS = (
    "Tell me a story about {name}.",
    "Write a story about a {kind} named {name}.",
    "Tell me a story about {name} and {animal}.",
    "Write a short story about {name} and {topic}.",
)


@dataclass(frozen=True)
class Story:
    """A finished story."""

    request: str
    text: str
    questions: list[tuple[str, str]]


def paragraphs(draw: Draw, sentences: list[str]) -> str:
    """The sentences in paragraphs of three to five."""
    done: list[str] = []
    start, size = 0, draw.randint(3, 5)
    while start < len(sentences):
        done.append(" ".join(sentences[start : start + size]))
        start, size = start + size, draw.randint(3, 5)
    return "\n\n".join(done)


def tell_story(draw: Draw) -> Story:
    """A story of a random plot, and a request that fits it."""
    child, friend = draw_child(draw), draw_friend(draw)
    plot = draw.choice(PLOTS)(draw, child, friend)
    text = paragraphs(draw, plot.sentences)
    if draw.chance(0.3):
        text += "\n\nMoral: " + draw.choice(plot.morals)
    share = draw.random()
    if share < 0.25:
        request = draw.choice(PLAIN_REQUESTS)
    elif share < 0.65:
        request = draw.choice(TOPIC_REQUESTS).format(topic=draw.choice(plot.topics))
    else:
        request = draw.choice(NAME_REQUESTS).format(
            name=child.name, kind=child.kind, animal=article(friend.species), topic=draw.choice(plot.topics[:2])
        )
    return Story(request, text, plot.questions)


def tell_another_story(draw: Draw) -> Story:
    """A request for a subject that no plot has: the answer says so and tells another story."""
    subject = article(draw.choice(UNKNOWN_SUBJECTS))
    story = tell_story(draw)
    request = draw.one_of(
        f"Tell me a story about {subject}.",
        f"Write a short story about {subject}.",
        f"A story about {subject}, please.",
        f"Can you tell me a story about {subject}?",
        f"Make up a story about {subject} and {article(draw.choice(UNKNOWN_SUBJECTS))}.",
    )
    preface = draw.one_of(
        f"I do not know a story about {subject}, but here is another one.\n\n",
        f"I have no story about {subject}. Here is a different one.\n\n",
    )
    return Story(request, preface + story.text, story.questions)
