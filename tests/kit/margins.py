"""Where two runs of the same prompts part, and how near the tie was there."""

import math

from nanoinfer import LLM, SamplingParams


def first_difference(one: list[int], other: list[int]) -> int | None:
    """Position of the first token that differs; None for equal lists."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)


def margin(reference: LLM, context: list[int], tokens: tuple[int, int]) -> float:
    """How much larger the logit of the better of two next tokens is after `context`, in float32."""
    request = reference.add_request(context, SamplingParams(temperature=0, max_tokens=1))
    finished = []
    while not finished:
        finished = reference.step()
    odds = {c["token_id"]: c["probability"] for c in reference.top_candidates(request, reference.config.vocab_size)}
    return abs(math.log(odds[tokens[0]] / odds[tokens[1]]))


def margins_where_they_part(
    reference: LLM, prompts: list[list[int]], one: list[list[int]], other: list[list[int]]
) -> list[float]:
    """The margin at each prompt's first difference; one number for each prompt whose completions differ."""
    found = []
    for prompt, a, b in zip(prompts, one, other, strict=True):
        i = first_difference(a, b)
        if i is not None:
            found.append(margin(reference, [*prompt, *a[:i]], (a[i], b[i])))
    return found
