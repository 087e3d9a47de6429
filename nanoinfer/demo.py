"""The demonstration run: five questions to the shipped model in a KV cache that is too small for them.

A long shared instruction gives prefix hits, a small budget cuts prompts into chunks, and a pool of few
blocks forces preemptions, all within some dozens of steps.
"""

from __future__ import annotations

from typing import Any

INSTRUCTION = "You are the guide of a small inference engine. Answer in plain words, be short and exact."

QUESTIONS = (
    "What is a KV cache?",
    "Can you explain preemption?",
    "What is chunked prefill?",
    "Why does the scheduler reverse the list?",
    "What is 7 plus 5?",
)

SETTINGS: dict[str, Any] = {
    "kvcache_block_size": 8,
    "num_kvcache_blocks": 20,
    "max_num_batched_tokens": 32,
    "max_num_seqs": 8,
}


def conversations() -> list[list[dict[str, str]]]:
    """One conversation per question, each with the shared instruction in front."""
    system = {"role": "system", "content": INSTRUCTION}
    return [[system, {"role": "user", "content": question}] for question in QUESTIONS]
