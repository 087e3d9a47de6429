"""What a plot is, and the sentences that many plots begin, continue and end with."""

from __future__ import annotations

from dataclasses import dataclass

from .characters import Child, Friend
from .draw import Draw, article, capitalised
from .words import FEEL_GOOD, GROWN_UPS, WEATHER


@dataclass(frozen=True)
class Plot:
    """One story before it is cut into paragraphs."""

    sentences: list[str]
    questions: list[tuple[str, str]]  # (question, answer): every answer can be read in the sentences
    topics: list[str]  # what a user may ask for; the first two are the most general
    morals: tuple[str, str]


def opening(draw: Draw, child: Child) -> str:
    """A first sentence that introduces the child."""
    home = draw.one_of("small house", "quiet village", "little town", "house on a hill", "cottage near the woods")
    land = draw.one_of("quiet village", "busy town", "small house by the sea", "green valley")
    return draw.one_of(
        f"Once upon a time, there was {article(child.trait)} {child.kind} named {child.name}.",
        f"There once was a {child.kind} called {child.name}, and {child.he} was very {child.trait}.",
        f"{child.name} was {article(child.trait)} {child.kind} who lived in a {home}.",
        f"In a {land} lived a {child.kind} named {child.name}. {capitalised(child.he)} was {child.trait}.",
    )


def likes(draw: Draw, child: Child, toy: str) -> str:
    """A sentence that says how dear the toy is to the child."""
    return draw.one_of(
        f"{capitalised(child.he)} loved {child.his} {toy} more than anything.",
        f"{child.name} had {article(toy)}, and {child.he} took it everywhere.",
        f"{capitalised(child.his)} favorite thing was {article(toy)}.",
        f"{child.name} was very fond of {child.his} {toy}.",
    )


def weather(draw: Draw) -> str:
    """Most often nothing, sometimes a sentence about the weather, with the space that goes before it."""
    return draw.one_of("", "", " " + draw.choice(WEATHER))


def ending(draw: Draw, child: Child, friend: Friend | None = None) -> str:
    """A happy last sentence, about the child alone or also about the friend."""
    endings = [
        f"{child.name} went home with a big smile.",
        f"That night, {child.name} slept very well.",
        f"{capitalised(child.he)} felt {draw.choice(FEEL_GOOD)} all day long.",
        f"It was the best day of the whole {draw.one_of('week', 'month', 'year')}.",
        f"{child.name} told {child.his} {draw.choice(GROWN_UPS)} all about it at dinner.",
    ]
    if friend is not None:
        endings += [
            f"From that day on, {child.name} and {friend.name} were best friends.",
            f"{child.name} and {friend.name} laughed and played until the sun went down.",
            f"{friend.name} and {child.name} promised to meet again the next day.",
        ]
    return draw.choice(endings)
