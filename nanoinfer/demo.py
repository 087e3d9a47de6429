"""The demonstration run: five questions to the shipped model in a KV cache that is too small for them.

A long shared instruction gives prefix hits, a small budget cuts prompts into chunks, and a pool of few
blocks forces preemptions, all within some dozens of steps.
"""

from __future__ import annotations

from typing import Any

from nanoinfer.trace.trace import Trace

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

# Tokens of each prompt in the shipped model's chat template, the first SHARED of which are the instruction, and of
# the model's answer.
SHARED = 28
LENGTHS = ((39, 41), (38, 43), (38, 34), (41, 29), (41, 10))

LEGEND = """\
What the scheduler did. In `ran`, 3:24+17 means sequence 3, 24 tokens computed before, 17 in this step, and (1/2) the
first of two chunks; `why` says why no other request was admitted; queues and free blocks are as the step left them.
"""


def conversations() -> list[list[dict[str, str]]]:
    """One conversation per question, each with the shared instruction in front."""
    system = {"role": "system", "content": INSTRUCTION}
    return [[system, {"role": "user", "content": question}] for question in QUESTIONS]


def answered(settings: dict[str, Any]) -> Trace:
    """The run of the shipped model, at temperature 0."""
    from nanoinfer import LLM, SamplingParams

    with LLM("tiny", **settings) as llm:
        trace: Trace = llm.chat(conversations(), SamplingParams(temperature=0, max_tokens=48), record=True)
        return trace


def simulated(settings: dict[str, Any]) -> Trace:
    """A run of the same sizes without a model: the scheduler decides as in `answered`."""
    from nanoinfer import SamplingParams, simulate

    own = [range(1000 * i, 1000 * i + length - SHARED) for i, (length, _) in enumerate(LENGTHS, 1)]
    params = [SamplingParams(max_tokens=answer) for _, answer in LENGTHS]
    return simulate([[*range(SHARED), *ids] for ids in own], params, **settings)
