"""What is refused at submission: requests that are malformed or could never be served.

Everything here raises before anything is queued. Whether a request that *could* be served
runs now is the scheduler's question, not this file's.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from nanoinfer.config import EngineConfig
from nanoinfer.core.sequence import Sequence as Request
from nanoinfer.reasons import RefusalReason, RefusedError
from nanoinfer.sampling_params import SamplingParams, as_ints


def check_token_ids(token_ids: Iterable[Any], vocab_size: int | None, field: str) -> list[int]:
    """`token_ids` as a new list of plain ints.

    Raises:
        ValueError: an id that is no integer, negative, or not below `vocab_size` (the model's, not the tokenizer's).
    """
    ids = list(as_ints(field, token_ids))
    limit = vocab_size if vocab_size is not None else 1 << 63
    if ids and not 0 <= min(ids) <= max(ids) < limit:
        token = next(token for token in ids if not 0 <= token < limit)
        allowed = f"in the vocabulary, 0 to {limit - 1}" if vocab_size is not None else "from 0 to 2**63 - 1"
        raise ValueError(f"each of {field} must be {allowed}, got {token}")
    return ids


def check_request(token_ids: list[int], params: SamplingParams, config: EngineConfig, name: str = "prompt") -> None:
    """Refuse a request that can never be served under `config`.

    The last sampled token never needs a KV slot, so a request fits if and only if
    min(prompt + max_tokens, max_model_len) - 1 <= num_kvcache_blocks * kvcache_block_size.

    Raises:
        ValueError: an empty prompt, or an id outside the vocabulary.
        RefusedError: (a ValueError) TOO_LONG or NEVER_FITS with both numbers.
    """
    if not token_ids:
        raise ValueError(f"{name} is empty; it needs at least one token")
    check_token_ids(token_ids, config.vocab_size, f"{name} token ids")
    check_token_ids(params.stop_token_ids, config.vocab_size, "stop_token_ids")
    length, limit = len(token_ids), config.max_model_len
    if length >= limit:
        raise RefusedError(
            RefusalReason.TOO_LONG,
            {"prompt": length, "max_model_len": limit},
            f"{name} has {length} tokens and max_model_len is {limit}, which leaves no room for a new token; "
            "shorten it, or raise max_model_len if the model has more positions",
        )
    tokens = min(length + params.max_tokens, limit) - 1
    needed, have = -(-tokens // config.kvcache_block_size), config.num_kvcache_blocks
    if needed > have:
        raise RefusedError(
            RefusalReason.NEVER_FITS,
            {"needed": needed, "have": have},
            f"{name} of {length} tokens and up to {params.max_tokens} new ones need {needed} blocks of "
            f"{config.kvcache_block_size}, have {have}; raise num_kvcache_blocks or lower max_tokens",
        )


def check_sequence(seq: Request, config: EngineConfig, live: Container[int]) -> None:
    """Refuse a sequence that a scheduler with `config`, in which the ids in `live` are in use, cannot take.

    Raises:
        ValueError: what `check_request` refuses, a reused id, a finished sequence or another block size.
    """
    check_request(seq.token_ids, seq.sampling_params, config)
    if seq.block_size != config.kvcache_block_size:
        raise ValueError(
            f"block_size of sequence {seq.seq_id} is {seq.block_size}, the scheduler's is {config.kvcache_block_size}"
        )
    if seq.is_finished:
        raise ValueError(
            f"sequence {seq.seq_id} has finished ({seq.finish_reason}); make a new Sequence to run it again"
        )
    if seq.seq_id in live:
        raise ValueError(f"seq_id {seq.seq_id} is already in use by a live sequence")


def one_per_prompt(
    prompts: Sequence[Any], params: SamplingParams | Sequence[SamplingParams] | None
) -> list[SamplingParams]:
    """Sampling parameters for each prompt: one for all (or the defaults), or a list as long as the prompts.

    Raises:
        ValueError: a list of another length.
        TypeError: something that is no SamplingParams.
    """
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * len(prompts)
    if not isinstance(params, (list, tuple)):
        raise TypeError(f"sampling_params must be SamplingParams or a list of them, got {params!r}")
    each = list(params)
    if len(each) != len(prompts):
        raise ValueError(
            f"sampling_params has {len(each)} entries for {len(prompts)} prompts; pass one, or one for each prompt"
        )
    for entry in each:
        if not isinstance(entry, SamplingParams):
            raise TypeError(f"sampling_params must hold SamplingParams, got {entry!r}")
    return each
