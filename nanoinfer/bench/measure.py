"""Works, each a batch of prompts and output lengths, and the time that whole, warm `generate` calls on them take.

Ids are drawn without a model in mind. What an engine gets is `Work.shifted`, which moves every id by the same number,
another one for each repetition: lengths stay, no prompt begins as one before it did, and so no prefix is in the cache.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Generate = Callable[[list[list[int]], list[int]], list[list[int]]]  # prompts, output lengths -> output token ids
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


@dataclass
class Runs:
    """The repetitions of one work on one engine.

    Attributes:
        tokens: output tokens of each repetition.
        seconds: of each repetition.
        warm_up: the outputs of the run before the timed ones.
    """

    tokens: int
    seconds: list[float] = field(default_factory=list)
    warm_up: list[list[int]] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        """Output tokens per second of each repetition."""
        return [self.tokens / s for s in self.seconds]

    @property
    def speed(self) -> float:
        """Median output tokens per second."""
        return statistics.median(self.speeds)

    def to_dict(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "tokens": [self.tokens] * len(self.seconds),
            "tokens_per_second": self.speeds,
            "median_seconds": statistics.median(self.seconds),
            "median_tokens_per_second": self.speed,
        }


def time_runs(
    engines: dict[str, Generate], work: Work, vocab_size: int, repeat: int, done: Callable[[], Any]
) -> dict[str, Runs]:
    """Run `work` once on each engine to warm it up, then `repeat` times in turns.

    Args:
        engines: by name; they may be the same engine called in different ways. The first one's turn t always gets
            the prompts shifted by t, so that a peer measured later gets the same.
        work: what to run.
        vocab_size: ids stay below it.
        repeat: timed runs of each.
        done: called after each run, for a progress bar.

    Raises:
        RuntimeError: an engine gave more or fewer tokens than the work wants.
    """
    runs = {name: Runs(sum(work.output_lens)) for name in engines}
    for turn in range(repeat + 1):
        for place, (name, generate) in enumerate(engines.items()):
            prompts = work.shifted(turn + place * (repeat + 1), vocab_size)
            gc.collect()
            start = time.perf_counter()
            outputs = generate(prompts, work.output_lens)
            seconds = time.perf_counter() - start
            _check_lengths(name, outputs, work)
            if turn == 0:
                runs[name].warm_up = outputs
            else:
                runs[name].seconds.append(seconds)
            done()
    return runs


def recording_cost(plain: Runs, recorded: Runs) -> float:
    """Percent of time that recording adds: the median over the pairs that ran one after the other."""
    pairs = zip(plain.seconds, recorded.seconds, strict=True)
    return 100 * (statistics.median(r / p for p, r in pairs) - 1)


def _check_lengths(name: str, outputs: list[list[int]], work: Work) -> None:
    wrong = [i for i, (o, n) in enumerate(zip(outputs, work.output_lens, strict=True)) if len(o) != n]
    if wrong:
        i = wrong[0]
        raise RuntimeError(
            f"{name} gave {len(outputs[i])} tokens for request {i}, which wants {work.output_lens[i]} "
            f"({len(wrong)} of {len(outputs)} requests differ); its speed would mean nothing"
        )
