"""From logits to one token per sequence: greedy, temperature, top-k, top-p, with a seed for each request.

Sampling is a race: token i finishes after an exponential time of rate p_i, and the first one home is drawn with
probability p_i (the Gumbel-max trick in its exponential form; Gumbel, 1954). The random numbers are in `draws.py`.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from nanoinfer.core.sequence import Sequence
from nanoinfer.runner.draws import MIN_TEMPERATURE, exponential, request_key, splitmix64


class Sampler:
    """Draws the next token of each row.

    Args:
        seed: the engine's; requests without a seed of their own get one from it and their id.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def sample(self, logits: Tensor, seqs: Seq[Sequence]) -> list[int]:
        """One token id for each row of logits [rows, vocab_size], row i for seqs[i]. Mutates nothing."""
        tokens = logits.argmax(dim=-1)
        drawn = [i for i, seq in enumerate(seqs) if seq.sampling_params.temperature > 0]
        if drawn:
            rows = torch.tensor(drawn, device=logits.device)
            tokens[rows] = self.draw(logits[rows].float(), [seqs[i] for i in drawn])
        return tokens.tolist()

    def draw(self, logits: Tensor, seqs: Seq[Sequence]) -> Tensor:
        """Random tokens [rows] for float32 logits [rows, vocab_size] of rows with a temperature."""
        params = [seq.sampling_params for seq in seqs]
        temperature = torch.tensor([max(p.temperature, MIN_TEMPERATURE) for p in params], device=logits.device)
        # Taking the maximum off first keeps tiny temperatures from overflowing: the best token stays at 0.
        scaled = (logits - logits.max(dim=-1, keepdim=True).values) / temperature.unsqueeze(1)
        top_k = [p.top_k if p.top_k > 0 else logits.shape[1] for p in params]
        candidates, token_ids = keep_likely(scaled, top_k, [p.top_p for p in params])
        keys = [request_key(self.seed, seq.sampling_params.seed, seq.seq_id) for seq in seqs]
        numbers = [seq.num_completion_tokens for seq in seqs]
        draw_keys = splitmix64(*torch.tensor((keys, numbers), device=logits.device))
        finish_times = exponential(splitmix64(draw_keys.unsqueeze(1), token_ids))
        winners = (candidates - finish_times.log()).argmax(dim=-1, keepdim=True)
        return token_ids.gather(1, winners).squeeze(1)


def keep_likely(scaled: Tensor, top_k: list[int], top_p: list[float]) -> tuple[Tensor, Tensor]:
    """The candidates of each row: logits, -inf where filtered out, and their token ids, both [rows, candidates].

    Top-p (Holtzman et al., 2020) looks at what top-k has left, and always keeps the most likely token.
    """
    rows, vocab = scaled.shape
    if min(top_k) >= vocab and min(top_p) >= 1:
        return scaled, torch.arange(vocab, device=scaled.device).expand(rows, -1)
    values, token_ids = scaled.topk(min(max(top_k), vocab), dim=-1)  # sorted, most likely first
    ranks = torch.arange(values.shape[1], device=scaled.device)
    values = values.masked_fill(ranks >= torch.tensor(top_k, device=scaled.device).unsqueeze(1), -torch.inf)
    probs = values.softmax(dim=-1)
    before = probs.cumsum(dim=-1) - probs  # of all more likely tokens; 0 for the first, which therefore stays
    enough = before >= torch.tensor(top_p, device=scaled.device).unsqueeze(1)
    return values.masked_fill(enough, -torch.inf), token_ids
