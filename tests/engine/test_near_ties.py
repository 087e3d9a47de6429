"""bfloat16 gives float32's greedy tokens, but for near-ties (B73)."""

from kit.margins import first_difference, margin, margins_where_they_part

from nanoinfer import LLM, SamplingParams

PROMPTS = [list(range(5 + i, 40 + 9 * i)) for i in range(6)]
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


def completions(**settings):
    with LLM("tiny", device="cpu", num_kvcache_blocks=32, **settings) as llm:
        return [output["token_ids"] for output in llm.generate(PROMPTS, GREEDY, use_tqdm=False)]


def test_bfloat16_parts_from_float32_only_at_near_ties():
    exact, rounded = completions(), completions(dtype="bfloat16")
    with LLM("tiny", device="cpu", num_kvcache_blocks=32) as reference:
        assert max(margins_where_they_part(reference, PROMPTS, exact, rounded), default=0) < 0.15
        # A wrong token is not a near-tie: the measure tells the difference.
        wrong = [[tokens[0], (tokens[1] + 1) % 4000, *tokens[2:]] for tokens in exact]
        assert first_difference(exact[0], wrong[0]) == 1
        assert min(margins_where_they_part(reference, PROMPTS, exact, wrong)) > 0.15
        assert margin(reference, PROMPTS[0], (exact[0][0], exact[0][0])) == 0
