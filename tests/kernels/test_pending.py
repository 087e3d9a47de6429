"""Pending token ids, against the torch reference."""

import pytest
import torch
from kit.comparison import DEVICE

from nanoinfer.kernels.ops import TritonOps
from nanoinfer.models.ops import TorchOps


@pytest.mark.parametrize("tokens", [1, 3, 256, 300])
def test_pending_ids_are_filled_in_and_others_kept(tokens):
    sampled = torch.arange(1000, 1000 + tokens, device=DEVICE)
    ids = torch.arange(tokens, dtype=torch.int32, device=DEVICE)
    pending = torch.arange(tokens, device=DEVICE) % 3 == 1
    mixed = torch.where(pending, -tokens + ids, ids)  # -1 - i, for another i than the token's own place
    for ops in (TorchOps(), TritonOps()):
        resolved = ops.resolve_pending(mixed, sampled)
        assert resolved.dtype == torch.int64
        assert torch.equal(resolved[~pending], ids[~pending].long())
        assert torch.equal(resolved[pending], (1000 + tokens - 1 - ids[pending]).long())
