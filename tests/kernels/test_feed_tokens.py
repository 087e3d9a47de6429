"""Tokens sampled by the step before are filled in as the torch reference does it."""

import pytest
import torch
from kit.comparison import DEVICE

from nanoinfer.kernels.ops import TritonOps
from nanoinfer.models.ops import Ops


@pytest.mark.parametrize("tokens", [1, 3, 256, 300])
def test_sampled_tokens_are_filled_in_and_others_kept(tokens):
    sampled = torch.arange(1000, 1000 + tokens, device=DEVICE)
    ids = torch.arange(tokens, dtype=torch.int32, device=DEVICE)
    unknown = torch.arange(tokens, device=DEVICE) % 3 == 1
    mixed = torch.where(unknown, -tokens + ids, ids)  # -1 - i, for another i than the token's own place
    for ops in (Ops(), TritonOps()):
        fed = ops.feed_tokens(mixed, sampled)
        assert fed.dtype == torch.int64
        assert torch.equal(fed[~unknown], ids[~unknown].long())
        assert torch.equal(fed[unknown], (1000 + tokens - 1 - ids[unknown]).long())
