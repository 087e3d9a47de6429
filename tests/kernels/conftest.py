"""The kernels run on the GPU where there is one, else in Triton's interpreter (chosen in the suite's conftest.py)."""

import pytest
import torch
from kit.interpreter_repairs import repair_interpreter


def pytest_configure():
    if not torch.cuda.is_available():
        repair_interpreter()


@pytest.fixture(autouse=True)
def same_numbers_every_run():
    torch.manual_seed(0)
