"""Short ways to write requests and limits, and random workloads, for the tests of all assignments."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from nanoinfer.core.sequence import Sequence
from nanoinfer.sampling_params import SamplingParams


def prompt(n: int, tag: int = 0) -> list[int]:
    """`n` token ids that share nothing with a prompt of another tag."""
    return [tag * 1000 + i + 1 for i in range(n)]


def tokens(max_tokens: int, **more: Any) -> SamplingParams:
    """Generate exactly `max_tokens` tokens, whatever they are."""
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True, **more)


def limits(block_size: int, blocks: int, budget: int = 64, seqs: int = 8) -> dict[str, int]:
    """The four limits of a run, as keywords of `simulate` and `EngineConfig`."""
    return {
        "kvcache_block_size": block_size,
        "num_kvcache_blocks": blocks,
        "max_num_batched_tokens": budget,
        "max_num_seqs": seqs,
    }


def sequence(token_ids: list[int], seq_id: int = 0, block_size: int = 4, max_tokens: int = 8) -> Sequence:
    """A request as the scheduler holds it, for tests that call a block manager by hand."""
    return Sequence(seq_id, token_ids, tokens(max_tokens), block_size)


def compute(manager: Any, seq: Sequence) -> None:
    """What a step does with the rest of `seq` once its KV is written: register its blocks, then count its tokens."""
    seq.num_scheduled_tokens = len(seq) - seq.num_computed_tokens
    manager.hash_blocks(seq)
    seq.num_computed_tokens, seq.num_scheduled_tokens = len(seq), 0


def admitted(manager: Any, token_ids: list[int], seq_id: int = 0) -> Sequence:
    """A sequence that was looked up, got its table and was computed."""
    seq = sequence(token_ids, seq_id, manager.block_size)
    manager.allocate(seq, manager.can_allocate(seq))
    compute(manager, seq)
    return seq


@dataclass
class Requests:
    """A workload: what `simulate` takes."""

    prompts: list[list[int]]
    params: list[SamplingParams]
    arrivals: list[int]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """As keywords of `simulate`."""
        return {
            "prompts": self.prompts,
            "sampling_params": self.params,
            "arrivals": self.arrivals,
            **self.settings,
        }


def random_requests(seed: int, spare_blocks: int | None = None, shared: bool = True) -> Requests:
    """A small workload that is hard on a scheduler: odd limits, shared prefixes, few blocks.

    Args:
        seed: the same seed gives the same workload.
        spare_blocks: blocks beyond what the longest request needs; None gives room for all at once (no pressure).
        shared: whether prompts begin alike.
    """
    rng = random.Random(seed)
    size = rng.randint(2, 6)
    base = [rng.randrange(50) for _ in range(3 * size + 2)]
    prompts, params = [], []
    for i in range(rng.randint(3, 7)):
        head = base[: rng.randint(0, len(base))] if shared else []
        prompts.append(head + [100 * (i + 1) + j for j in range(rng.randint(1, 2 * size))])
        params.append(tokens(rng.randint(1, 3 * size)))
    needs = [-(-(len(ids) + p.max_tokens) // size) for ids, p in zip(prompts, params, strict=True)]
    blocks = sum(needs) if spare_blocks is None else max(needs) + spare_blocks
    arrivals = sorted(rng.randint(0, 12) for _ in prompts)
    return Requests(prompts, params, arrivals, limits(size, blocks, rng.randint(3, 5 * size), rng.randint(2, 5)))
