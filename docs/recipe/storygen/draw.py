"""Random choices, and the little English grammar that the sentences need."""

from __future__ import annotations

import random


class Draw(random.Random):
    """The one source of chance of a corpus.

    A corpus is fixed by its seed and by the order of the calls made here, so an added, dropped
    or moved draw changes every document after it.
    """

    def one_of(self, *options: str) -> str:
        """One of the given texts. All of them are built first, with the draws inside them, also those not taken."""
        return self.choice(options)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability


def article(phrase: str) -> str:
    """The phrase with "a" or "an" in front, chosen by its first letter (and the silent h of honest)."""
    return ("an " if phrase[0] in "aeiou" or phrase.startswith("honest") else "a ") + phrase


def capitalised(phrase: str) -> str:
    """The phrase with a capital first letter and the rest as it is."""
    return phrase[0].upper() + phrase[1:]
