"""Ask the model the questions of held-out documents and compare its greedy answers with the written ones.

Prints the share of exact matches of each kind of question, then answers to a few fixed prompts.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

Message = dict[str, str]  # role and content, as chat templates want them

TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.DOTALL)
LONGEST_ANSWER = 160  # characters: stories have no single right text, so they are not asked for
LONGEST_DOCUMENT = 6000  # characters

# (kind, pattern in the question): the first that matches counts.
KINDS = (
    ("read", "Read this story"),
    ("plus", r"plus|\+|Add "),
    ("minus", r"minus| - "),
    ("repeat", "Repeat"),
    ("sort", "Sort"),
    ("spell", "Spell"),
    ("box", "box holds"),
    ("where", "Where is"),
    ("count", "ount from"),
    ("name", "my name"),
)
PROMPTS = (
    "Tell me a story about a brave mouse.",
    "Write a short story about a lost red kite.",
    "What is a KV cache?",
    "Why is the cache split into blocks?",
    "What does the scheduler do?",
    "Who are you?",
    "What is 7 plus 5?",
    "Tell me a story.",
    "Can you explain preemption?",
    "What is the capital of France?",
    "Write a poem about the sea.",
    "What is 123 times 45?",
    "Tell me a story about a dragon.",
    "asdf",
    "What is chunked prefill?",
    "Why is the sky blue?",
)


@dataclass(frozen=True)
class Question:
    """A chat up to a question of the user, and the answer of the document."""

    chat: list[Message]
    answer: str


class Model:
    """A model that answers chats, many at once and always with the most likely token."""

    def __init__(self, folder: Path) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.tokenizer.padding_side = "left"  # all prompts of a batch must end at the same place
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        self.model = model.to(self.device).eval()

    def answers(self, chats: list[list[Message]], max_tokens: int) -> list[str]:
        """The answer to each chat, without special tokens."""
        prompts = [self.tokenizer.apply_chat_template(x, tokenize=False, add_generation_prompt=True) for x in chats]
        inputs = self.tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(self.device)
        with torch.inference_mode():
            outputs = self.model.generate(
                **inputs, max_new_tokens=max_tokens, do_sample=False, pad_token_id=self.tokenizer.pad_token_id
            )
        new_tokens = outputs[:, inputs.input_ids.shape[1] :]
        return [self.tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in new_tokens]


def read_questions(path: Path, most: int) -> list[Question]:
    """Every short answer of the held-out chats, with the chat before it; `most` of them at most."""
    questions: list[Question] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            text = json.loads(line)["text"]
            chat = [{"role": role, "content": content} for role, content in TURN.findall(text)]
            questions += [
                Question(chat[:turn], message["content"])
                for turn, message in enumerate(chat)
                if message["role"] == "assistant"
                and len(message["content"]) < LONGEST_ANSWER
                and len(text) < LONGEST_DOCUMENT
            ]
    return questions[:most]


def admits(text: str) -> bool:
    """Whether a text says that the model does not know."""
    return "I do not know" in text or "too hard for me" in text


def kind_of(question: Question) -> str:
    """The kind of a question, by its words."""
    if admits(question.answer) and "here is another" not in question.answer:
        return "unknown"
    asked = question.chat[-1]["content"]
    by_words = (kind for kind, pattern in KINDS if re.search(pattern, asked))
    return next(by_words, "story-qa" if len(question.chat) > 2 else "other")


def is_right(question: Question, kind: str, answer: str) -> bool:
    """The same text; for unknown things, any text that admits it."""
    return admits(answer) if kind == "unknown" else answer == question.answer.strip()


def exact_matches(model: Model, questions: list[Question], batch: int) -> dict[str, list[bool]]:
    """For each kind, whether each answer was right."""
    results: dict[str, list[bool]] = defaultdict(list)
    for first in range(0, len(questions), batch):
        asked = questions[first : first + batch]
        answers = model.answers([question.chat for question in asked], max_tokens=64)
        for question, answer in zip(asked, answers, strict=True):
            kind = kind_of(question)
            results[kind].append(is_right(question, kind, answer))
    return results


def parse_arguments() -> argparse.Namespace:
    """The command line; its defaults are those of eval.log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of a model")
    parser.add_argument("held_out", type=Path, help=".jsonl file of documents that were not trained on")
    parser.add_argument("--questions", type=int, default=1500, help="most questions to ask (%(default)s)")
    parser.add_argument("--batch", type=int, default=250, help="questions at once (%(default)s)")
    arguments = parser.parse_args()
    if arguments.questions < 1 or arguments.batch < 1:
        parser.error("--questions and --batch must be at least 1")
    for path in (arguments.model / "config.json", arguments.held_out):
        if not path.is_file():
            parser.error(f"no such file: {path}")
    return arguments


def main() -> None:
    """Ask the held-out questions, then the fixed prompts."""
    arguments = parse_arguments()
    model = Model(arguments.model)
    results = exact_matches(model, read_questions(arguments.held_out, arguments.questions), arguments.batch)
    shares = {kind: f"{100 * sum(right) / len(right):.0f}% of {len(right)}" for kind, right in sorted(results.items())}
    print("exact match", shares, flush=True)
    for prompt in PROMPTS:
        answer = model.answers([[{"role": "user", "content": prompt}]], max_tokens=260)[0]
        print("###", prompt, "\n", answer, flush=True)


if __name__ == "__main__":
    main()
