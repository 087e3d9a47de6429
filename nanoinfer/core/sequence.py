"""One request's state: its tokens, how far their KV is computed, and where it lies.

The length has one source of truth, `token_ids`; every other length is derived from it.
This file does not decide anything: the scheduler and the block manager change these fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from operator import index
from typing import Any

from nanoinfer.reasons import FinishReason
from nanoinfer.sampling_params import SamplingParams


class SequenceStatus(Enum):
    """Where a sequence stands."""

    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


class Sequence:
    """One inference request.

    Args:
        seq_id: unique within one engine.
        token_ids: the prompt; copied, so the caller's list never changes. Later the completion joins it. A last id
            below 0 stands for a token that is not known here yet.
        sampling_params: how to sample and when to stop.
        block_size: token slots in one KV block.
        prompt: the text the ids came from, if any; only carried along.

    Attributes:
        num_computed_tokens: tokens whose KV is in the cache, computed or found there (nano-vLLM: num_cached_tokens).
        num_cached_tokens: only those that the prefix cache found at the last admission.
        num_scheduled_tokens: tokens the step in flight computes.
        block_table: physical block of each logical block; empty until admitted.
        block_hashes: chained hashes of the full blocks, filled in as they are asked for.
        num_chunks: prefill chunks scheduled since the last admission.
        is_prefill: True until the prompt (or, after a preemption, all tokens so far) is computed.
    """

    __slots__ = (
        "block_hashes",
        "block_size",
        "block_table",
        "finish_reason",
        "is_prefill",
        "num_cached_tokens",
        "num_chunks",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_scheduled_tokens",
        "prompt",
        "sampling_params",
        "seq_id",
        "status",
        "token_ids",
    )

    def __init__(
        self,
        seq_id: int,
        token_ids: Iterable[int],
        sampling_params: SamplingParams | None = None,
        block_size: int = 256,
        prompt: str | None = None,
    ) -> None:
        self.seq_id = seq_id
        self.token_ids = list(token_ids)
        self.sampling_params = sampling_params or SamplingParams()
        self.block_size = block_size
        self.prompt = prompt
        self.num_prompt_tokens = len(self.token_ids)
        self.status = SequenceStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.is_prefill = True
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0
        self.num_scheduled_tokens = 0
        self.num_chunks = 0
        self.num_preemptions = 0
        self.block_table: list[int] = []
        self.block_hashes: list[int] = []

    def __len__(self) -> int:
        return len(self.token_ids)

    def __repr__(self) -> str:
        return (
            f"Sequence({self.seq_id}, {self.status.name.lower()}, prompt={self.num_prompt_tokens}, "
            f"completion={self.num_completion_tokens}, computed={self.num_computed_tokens}, blocks={self.block_table})"
        )

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def last_token(self) -> int:
        return self.token_ids[-1]

    @property
    def num_completion_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def prompt_token_ids(self) -> list[int]:
        return self.token_ids[: self.num_prompt_tokens]

    @property
    def completion_token_ids(self) -> list[int]:
        """The sampled ids that are known."""
        sampled = self.token_ids[self.num_prompt_tokens :]
        return sampled[:-1] if sampled and sampled[-1] < 0 else sampled

    @property
    def is_finished(self) -> bool:
        return self.status is SequenceStatus.FINISHED

    @property
    def num_blocks(self) -> int:
        """Blocks that hold all tokens so far, the last of them possibly only partly filled."""
        return -(-len(self.token_ids) // self.block_size)

    def block(self, i: int) -> list[int]:
        """Token ids of logical block `i`."""
        return self.token_ids[i * self.block_size : (i + 1) * self.block_size]

    def append_token(self, token_id: int) -> int:
        """Add a sampled token; numpy and tensor scalars become plain ints. Returns what was stored."""
        token_id = index(token_id)
        self.token_ids.append(token_id)
        return token_id

    def replace_last_token(self, token_id: int) -> int:
        """Put `token_id` in the place of the last token, as `append_token` would. Returns what was stored."""
        self.token_ids[-1] = index(token_id)
        return self.token_ids[-1]

    def drop_last_token(self) -> None:
        self.token_ids.pop()


def request_output(seq: Sequence, text: str | None = None) -> dict[str, Any]:
    """The result of a request as the public API returns it."""
    return {
        "request_id": seq.seq_id,
        "prompt": seq.prompt,
        "text": text,
        "token_ids": seq.completion_token_ids,
        "finish_reason": None if seq.finish_reason is None else str(seq.finish_reason),
        "num_prompt_tokens": seq.num_prompt_tokens,
        "num_preemptions": seq.num_preemptions,
    }
