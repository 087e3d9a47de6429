"""What a user hands in, as lists: the names of a batch's prompts, and one conversation or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def names_of(count: int) -> list[str]:
    """What messages call the prompts of a batch."""
    return ["prompt"] if count == 1 else [f"prompt {i}" for i in range(count)]


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
