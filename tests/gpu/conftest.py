"""These tests need an NVIDIA GPU; elsewhere they are skipped even when chosen."""

import pytest
import torch


@pytest.fixture(autouse=True)
def gpu():
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
