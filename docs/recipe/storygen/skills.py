"""Small skills with one right answer. Each function draws one (question, answer).

Some can be computed (sums, sorting); some can only be copied from the question (boxes, places),
which is what teaches a model to look back into its context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .draw import Draw, article, capitalised
from .words import ANIMAL_SOUNDS, COLORS, DAYS, MONTHS, NAMES, OPPOSITES, PLACES, THINGS, TOYS, at

Exchange = tuple[str, str]


def addition(draw: Draw) -> Exchange:
    """A sum of two numbers up to 20."""
    a, b = draw.randint(0, 20), draw.randint(0, 20)
    return draw.one_of(f"What is {a} plus {b}?", f"{a} + {b} = ?", f"Add {a} and {b}."), f"{a} plus {b} is {a + b}."


def subtraction(draw: Draw) -> Exchange:
    """A difference that is never below zero."""
    a = draw.randint(0, 20)
    b = draw.randint(0, a)
    return draw.one_of(f"What is {a} minus {b}?", f"{a} - {b} = ?"), f"{a} minus {b} is {a - b}."


def opposite(draw: Draw) -> Exchange:
    """The opposite of a word."""
    word = draw.choice(list(OPPOSITES))
    question = draw.one_of(f"What is the opposite of {word}?", f"Tell me the opposite of {word}.")
    return question, f"The opposite of {word} is {OPPOSITES[word]}."


def animal_sound(draw: Draw) -> Exchange:
    """What an animal says."""
    animal = draw.choice(list(ANIMAL_SOUNDS))
    question = draw.one_of(f"What does {article(animal)} say?", f"What sound does {article(animal)} make?")
    return question, f"{capitalised(article(animal))} says {ANIMAL_SOUNDS[animal]}."


def next_day(draw: Draw) -> Exchange:
    """The day of the week after another."""
    today = draw.randrange(7)
    question = draw.one_of(f"What day comes after {DAYS[today]}?", f"Which day is after {DAYS[today]}?")
    return question, f"{DAYS[(today + 1) % 7]} comes after {DAYS[today]}."


def next_month(draw: Draw) -> Exchange:
    """The month after another."""
    month = draw.randrange(12)
    return f"What month comes after {MONTHS[month]}?", f"{MONTHS[(month + 1) % 12]} comes after {MONTHS[month]}."


def counting(draw: Draw) -> Exchange:
    """Four to nine numbers in a row."""
    first = draw.randint(1, 15)
    last = first + draw.randint(3, 8)
    question = draw.one_of(f"Count from {first} to {last}.", f"Please count from {first} to {last}.")
    return question, ", ".join(map(str, range(first, last + 1))) + "."


def sorting(draw: Draw) -> Exchange:
    """Words in the order of the alphabet."""
    words = draw.sample(THINGS, draw.randint(3, 5))
    return f"Sort these words: {', '.join(words)}.", ", ".join(sorted(words)) + "."


def repeating(draw: Draw, words: Sequence[str] = THINGS, most: int = 6) -> Exchange:
    """Two or more words, in the same order."""
    chosen = draw.sample(words, draw.randint(2, most))
    return f"Repeat these words: {', '.join(chosen)}.", ", ".join(chosen) + "."


def spelling(draw: Draw) -> Exchange:
    """A word, letter by letter."""
    word = draw.choice(THINGS)
    return f"Spell the word {word}.", "-".join(word) + "."


def boxes(draw: Draw, fewest: int = 3, most: int = 7) -> Exchange:
    """Boxes of several colors, and what one of them holds."""
    count = draw.randint(fewest, most)
    colors, toys = draw.sample(COLORS, count), draw.sample(TOYS, count)
    asked = draw.randrange(count)
    holds = [f"The {color} box holds {article(toy)}." for color, toy in zip(colors, toys, strict=True)]
    return " ".join(holds) + f" What is in the {colors[asked]} box?", holds[asked]


def whereabouts(draw: Draw, fewest: int = 3, most: int = 6) -> Exchange:
    """People in several places, and where one of them is."""
    count = draw.randint(fewest, most)
    names, places = draw.sample(NAMES, count), draw.sample(PLACES, count)
    asked = draw.randrange(count)
    facts = [f"{name} is {at(place)}." for name, place in zip(names, places, strict=True)]
    return " ".join(facts) + f" Where is {names[asked]}?", facts[asked]


SKILLS: tuple[Callable[[Draw], Exchange], ...] = (
    addition,
    subtraction,
    opposite,
    animal_sound,
    next_day,
    next_month,
    counting,
    sorting,
    repeating,
    spelling,
    boxes,
    whereabouts,
)


def draw_skill(draw: Draw) -> Exchange:
    """A question of a random skill, and its answer."""
    return draw.choice(SKILLS)(draw)
