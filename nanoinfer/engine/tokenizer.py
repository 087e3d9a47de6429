"""Text to token ids and back, with the checkpoint's own tokenizer and chat template.

A thin layer over transformers, which is imported on first use because that takes seconds. Nothing is ever
downloaded, and no special tokens are added that the text does not hold itself.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json")


def split_thinking(text: str) -> tuple[str, str]:
    """What a model thought and what it answered.

    Newer chat templates open the thinking block in the prompt, so that only the closing tag is generated: a missing
    opening tag is as good as one. Without a closing tag, a text that opens the block is all thinking, and any other
    text is all answer.
    """
    thought, closing, answer = text.partition("</think>")
    if not closing and "<think>" not in text:
        return "", text.strip()
    return thought.replace("<think>", "", 1).strip(), answer.strip()


class Tokenizer:
    """The tokenizer of one model directory, read on first use."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = model_dir

    @cached_property
    def _inner(self) -> Any:
        """The transformers tokenizer. Raises ValueError when it cannot be read."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.model_dir, local_files_only=True)
        except Exception as error:  # anything from a JSON error to a missing package
            raise ValueError(f"cannot load the tokenizer in {self.model_dir}: {error}") from error
        tokenizer.model_max_length = sys.maxsize  # the engine refuses long prompts itself, with the numbers
        return tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids of text. Special tokens written out in the text become their ids; none are added.

        Raises:
            ValueError: the tokenizer files cannot be read.
        """
        ids: list[int] = self._inner.encode(text, add_special_tokens=False)
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        text: str = self._inner.decode(list(token_ids), skip_special_tokens=True)
        return text

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **kwargs: Any
    ) -> tuple[str, list[int]]:
        """Render a conversation once, with the checkpoint's template.

        Args:
            messages: dicts with "role" and "content".
            add_generation_prompt: end with the start of the assistant's turn.
            kwargs: variables of the template, for example enable_thinking.

        Returns:
            the rendered text, and its token ids: exactly what the model sees.

        Raises:
            ValueError: no readable tokenizer, no template, or a template that refuses the messages.
        """
        tokenizer = self._inner
        try:
            text: str = tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=add_generation_prompt, **kwargs
            )
        except Exception as error:  # template errors have their own hierarchy
            raise ValueError(f"the chat template cannot render these messages: {error}") from error
        return text, self.encode(text)


def load_tokenizer(model_dir: Path) -> Tokenizer | None:
    """The directory's tokenizer, or None when it has no tokenizer files: token ids work without."""
    return Tokenizer(model_dir) if any((model_dir / name).exists() for name in TOKENIZER_FILES) else None


def conversations(messages: Sequence[Any]) -> list[list[dict[str, str]]]:
    """One conversation or several, as a list of them. Raises ValueError for anything else."""
    if isinstance(messages, str):
        raise ValueError(f'chat() takes a conversation: [{{"role": "user", "content": {messages!r}}}]')
    one = isinstance(messages, Sequence) and bool(messages) and isinstance(messages[0], dict)
    chats = [messages] if one else messages
    for chat in chats:
        for message in chat:
            if not isinstance(message, dict) or not isinstance(message.get("content"), str) or "role" not in message:
                raise ValueError(f'a message is {{"role": ..., "content": text}}, got {message!r}')
    return [list(chat) for chat in chats]
