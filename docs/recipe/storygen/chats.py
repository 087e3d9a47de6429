"""Turns of a chat, and the ChatML text that the model is trained on."""

from __future__ import annotations

from .draw import Draw
from .facts import FACTS
from .skills import draw_skill
from .stories import Story
from .unknowns import draw_unknown

Turn = tuple[str, str]  # (role, text)

SYSTEM_PROMPTS = (
    "You are a kind storyteller who writes short stories for children.",
    "You are a small and friendly assistant. Answer in one or two short sentences.",
    "You are nanoinfer's tiny model. You explain how an inference engine works in simple words.",
    "Answer the question of the user. If you do not know the answer, say so.",
    (
        "You are a storyteller for young children. Use short words and short sentences. Every story has a child and "
        "an animal who meet, solve a problem together and become friends. Nobody is hurt, and nobody is unkind for "
        "long. A story begins with a place and a name, has three or four small scenes, and ends with a happy "
        "evening at home. After the story the children ask questions. Answer each question with one full sentence, "
        "and use the names from the story. If a child says hello, say hello. If a child tells you a name, remember "
        "it. When a child asks about numbers, days or animals, give the answer in one short sentence and nothing "
        "else."
    ),
    (
        "You are the guide of a small inference engine. People ask you what the engine does in each step, and you "
        "answer in plain words. The engine reads a prompt in prefill and writes new tokens in decode. It keeps keys "
        "and values in blocks, and a block table says where they are. The scheduler has a waiting queue and a "
        "running queue and a token budget. Be short and exact. Do not guess. If the user asks for a story, tell "
        "one, and if the user asks for a sum, give the result."
    ),
)


def exchange(question: str, answer: str) -> list[Turn]:
    """A question of the user and the answer of the assistant."""
    return [("user", question), ("assistant", answer)]


def chat_text(draw: Draw, turns: list[Turn]) -> str:
    """The turns as ChatML; three chats in ten get a system prompt."""
    if draw.chance(0.3):
        turns = [("system", draw.choice(SYSTEM_PROMPTS)), *turns]
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)


def skill_turns(draw: Draw) -> list[Turn]:
    """A small skill."""
    return exchange(*draw_skill(draw))


def fact_turns(draw: Draw) -> list[Turn]:
    """A fact, asked for in one of several ways."""
    questions, answer = draw.choice(FACTS)
    return exchange(draw.choice(questions), answer)


def unknown_turns(draw: Draw) -> list[Turn]:
    """A question the model cannot answer."""
    return exchange(*draw_unknown(draw))


def story_question_turns(draw: Draw, story: Story, most: int) -> list[Turn]:
    """One or more questions about a story that was told before."""
    count = min(len(story.questions), draw.randint(1, most))
    return [turn for question, answer in draw.sample(story.questions, count) for turn in exchange(question, answer)]


def introduction_turns(draw: Draw, name: str) -> list[Turn]:
    """The user says a name."""
    greeting = draw.one_of(f"My name is {name}.", f"Hi, I am {name}.", f"Hello! My name is {name}.")
    return exchange(greeting, draw.one_of(f"Nice to meet you, {name}!", f"Hello, {name}! What would you like to do?"))


def name_question_turns(draw: Draw, name: str) -> list[Turn]:
    """The user wants to hear the name again."""
    return exchange(draw.one_of("What is my name?", "Do you remember my name?"), f"Your name is {name}.")
