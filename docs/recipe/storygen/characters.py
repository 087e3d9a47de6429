"""The two characters of each story: a child and an animal."""

from __future__ import annotations

from dataclasses import dataclass

from .draw import Draw
from .words import BOYS, FRIEND_NAMES, FRIEND_SPECIES, GIRLS, TRAITS


@dataclass(frozen=True)
class Child:
    """The child a story is about, with its pronouns: `he`, `him` and `his` hold "she" and "her" for a girl."""

    kind: str  # "girl" or "boy"
    name: str
    he: str
    him: str
    his: str
    trait: str


@dataclass(frozen=True)
class Friend:
    """An animal that talks."""

    species: str
    name: str
    trait: str

    @property
    def title(self) -> str:
        """As stories introduce it: "Pip the rabbit"."""
        return f"{self.name} the {self.species}"


def draw_child(draw: Draw) -> Child:
    """A girl or a boy with a name and a trait."""
    if draw.chance(0.5):
        return Child("girl", draw.choice(GIRLS), "she", "her", "her", draw.choice(TRAITS))
    return Child("boy", draw.choice(BOYS), "he", "him", "his", draw.choice(TRAITS))


def draw_friend(draw: Draw) -> Friend:
    """An animal with a name and a trait."""
    return Friend(draw.choice(FRIEND_SPECIES), draw.choice(FRIEND_NAMES), draw.choice(TRAITS))
