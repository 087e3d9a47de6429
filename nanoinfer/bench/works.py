"""The works that are measured: which prompts, and how many tokens each one wants.

Ids are drawn without a model in mind. What an engine gets is `Work.shifted`, which moves every id by the same number,
another one for each repetition: lengths stay, no prompt begins as one before it did, and so no prefix is in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

LAST_ID = 10_000
A_REQUESTS, A_SHORTEST, A_LONGEST = 256, 100, 1024


@dataclass(frozen=True)
class Work:
    """One batch of requests.

    Attributes:
        name: "A" or "B".
        prompts: token ids from 0 to LAST_ID.
        output_lens: tokens each request wants, no more and no fewer.
    """

    name: str
    prompts: list[list[int]]
    output_lens: list[int]

    @property
    def prompt_lens(self) -> list[int]:
        return [len(prompt) for prompt in self.prompts]

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output together."""
        return max(p + o for p, o in zip(self.prompt_lens, self.output_lens, strict=True))

    def shifted(self, shift: int, vocab_size: int) -> list[list[int]]:
        """The prompts with `shift` added to every id, modulo the vocabulary."""
        return [[(token + shift) % vocab_size for token in prompt] for prompt in self.prompts]


def work_a(seed: int) -> Work:
    """256 requests of 100 to 1,024 prompt and 100 to 1,024 output tokens, drawn as nano-vLLM's benchmark draws them."""
    rng = Random(seed)
    prompts = [[rng.randint(0, LAST_ID) for _ in range(rng.randint(A_SHORTEST, A_LONGEST))] for _ in range(A_REQUESTS)]
    return Work("A", prompts, [rng.randint(A_SHORTEST, A_LONGEST) for _ in range(A_REQUESTS)])


def works_b(seed: int, batch_sizes: Sequence[int], input_len: int, output_len: int) -> list[Work]:
    """For each batch size that many requests of equal lengths. No two of them share a prompt.

    Raises:
        ValueError: a number below 1.
    """
    for name, value in (("input-len", input_len), ("output-len", output_len), ("requests", min(batch_sizes))):
        if value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    rng = Random(seed)
    return [
        Work("B", [[rng.randint(0, LAST_ID) for _ in range(input_len)] for _ in range(n)], [output_len] * n)
        for n in batch_sizes
    ]
