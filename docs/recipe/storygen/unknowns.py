"""Questions the model cannot answer, so that it learns to say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .draw import Draw
from .words import COLORS, COUNTRIES, NAMES, THINGS, TOPICS

ANSWERS = (
    "I do not know that. I am a very small model.",
    "I do not know. I only know short stories, small sums and how I run.",
    "That is too hard for me. I can tell you a short story or explain how an inference engine works.",
    "I am sorry, I do not know that.",
    "I do not know that. You can ask me for a story or for the way I run.",
)


def no_blanks(_: Draw) -> dict[str, str]:
    """For templates with no blanks but {country} and {topic}."""
    return {}


def numbers(least: int, most: int) -> Callable[[Draw], dict[str, str]]:
    """Fills {a} and {b} with numbers of this range."""

    def fill(draw: Draw) -> dict[str, str]:
        return {"a": str(draw.randint(least, most)), "b": str(draw.randint(least, most))}

    return fill


def word_and_language(draw: Draw) -> dict[str, str]:
    """Fills {word}, {target} and {language}."""
    return {
        "word": draw.choice(THINGS + COLORS),
        "target": draw.one_of("French", "German", "Spanish", "Chinese", "Latin"),
        "language": draw.one_of("French", "German", "Spanish", "Chinese"),
    }


def people(draw: Draw) -> dict[str, str]:
    """Fills {name}, {other} and {relative}."""
    return {
        "name": draw.choice(NAMES),
        "other": draw.choice(NAMES),
        "relative": draw.one_of("dog", "cat", "mother", "brother", "teacher"),
    }


@dataclass(frozen=True)
class Kind:
    """Questions of one kind: templates, and a function that draws what fills their blanks."""

    templates: tuple[str, ...]
    fill: Callable[[Draw], dict[str, str]] = no_blanks


KINDS = (
    Kind(
        (
            "What is the capital of {country}?",
            "Tell me the capital of {country}.",
            "Which city is the capital of {country}?",
        )
    ),
    Kind(
        (
            "Who is the president of {country}?",
            "Who is the king of {country}?",
            "Who is the queen of {country}?",
            "Who is the richest person in {country}?",
            "Who is the best football player of {country}?",
            "Who is the prime minister of {country}?",
        )
    ),
    Kind(
        (
            "How many people live in {country}?",
            "Where is {country}?",
            "What language do people speak in {country}?",
            "Is {country} a big country?",
            "Tell me about {country}.",
        )
    ),
    Kind(
        (
            "Tell me about {topic}.",
            "What do you know about {topic}?",
            "Explain {topic} to me.",
            "Can you teach me {topic}?",
            "What is the history of {topic}?",
        )
    ),
    Kind(
        (
            "Write a poem about {topic}.",
            "Write an essay about {topic}.",
            "Sing a song about {topic}.",
            "Write an email about {topic}.",
            "Make a list of ten facts about {topic}.",
        )
    ),
    Kind(
        (
            "What is the weather today?",
            "Will it rain tomorrow?",
            "What time is it?",
            "What day is it today?",
            "What is the date?",
            "What year is it?",
        )
    ),
    Kind(("What is {a} plus {b}?", "{a} + {b} = ?", "What is {a} minus {b}?", "Add {a} and {b}."), numbers(21, 9999)),
    Kind(
        (
            "What is {a} times {b}?",
            "{a} * {b} = ?",
            "What is {a} divided by {b}?",
            "What is the square root of {a}?",
        ),
        numbers(2, 999),
    ),
    Kind(
        (
            "Write a Python function about {topic}.",
            "Write a program that sorts a list.",
            "Fix this code for me.",
            "How do I install Python?",
            "What is a for loop?",
            "def main():",
            "print('hello')",
        )
    ),
    Kind(("Translate {word} into {target}.", "What is the {language} word for {word}?"), word_and_language),
    Kind(
        (
            "Who won the world cup?",
            "Who wrote Hamlet?",
            "When did the war end?",
            "Who invented the telephone?",
            "How tall is the highest mountain?",
            "How far is the moon?",
            "How old is the earth?",
            "Why is the sky blue?",
            "What is the meaning of life?",
            "How fast is light?",
            "What is the biggest animal?",
        )
    ),
    Kind(
        (
            "How do I bake bread?",
            "Give me a recipe for soup.",
            "What should I cook today?",
            "How do I lose weight?",
            "I have a headache. What should I do?",
            "Which stock should I buy?",
            "How can I earn money?",
            "Which phone is the best?",
        )
    ),
    Kind(
        (
            "Where does {name} live?",
            "Who is {other}?",
            "What is the name of my {relative}?",
            "How old am I?",
            "Where do I live?",
            "What is my favorite food?",
        ),
        people,
    ),
    Kind(
        (
            "What do you think about people?",
            "Are you alive?",
            "Do you have feelings?",
            "Do you like music?",
            "Are you better than other models?",
            "Can you see me?",
            "Do you dream?",
        )
    ),
    Kind(
        (
            "asdf",
            "qwerty",
            "lorem ipsum dolor sit amet",
            "bla bla bla",
            "xyz 123",
            "...",
            "?",
            "test",
            "42",
            "hmm",
            "foo bar baz",
        )
    ),
    Kind(
        (
            "Summarize the news of today.",
            "What happened yesterday?",
            "Search the web for me.",
            "Open the door.",
            "Play a game with me.",
            "Draw a picture of a house.",
            "Send a message to my friend.",
            "Set an alarm.",
        )
    ),
)


def draw_unknown(draw: Draw) -> tuple[str, str]:
    """A question of a random kind, and an answer that admits it."""
    kind = draw.choice(KINDS)
    # Drawn for every kind, also where no template of the kind has the blank.
    blanks = {"country": draw.choice(COUNTRIES), "topic": draw.choice(TOPICS), **kind.fill(draw)}
    question = draw.choice(kind.templates).format(**blanks)
    return question, draw.choice(ANSWERS)
