"""Triton's interpreter as a lesson uses it, in a process of its own: it must be chosen before triton is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

KERNEL = """
import torch
from nanoinfer.kernels.interpreter import triton_interpreter
assert triton_interpreter()
from triton.runtime import interpreter
once = interpreter._patch_lang_tensor
assert triton_interpreter() and interpreter._patch_lang_tensor is once  # a cell may run twice
from nanoinfer.kernels.paged_decode import paged_decode
torch.manual_seed(0)
keys, values = torch.randn(2, 160, 1, 16)
query, table = torch.randn(1, 1, 16), torch.arange(10, dtype=torch.int32)[None]
out = paged_decode(query, keys, values, table, torch.tensor([150], dtype=torch.int32), 16, 160, 0.25)
weights = (keys[:150, 0] @ query[0, 0] / 4).softmax(0)
assert torch.allclose(out[0, 0], weights @ values[:150, 0], atol=1e-5)
"""
TOO_LATE = """
import triton
from nanoinfer.kernels.interpreter import triton_interpreter
triton_interpreter()
"""

ENGINE = """
import os, sys
os.environ["TRITON_INTERPRET"] = "1"  # all that a user does
sys.path.insert(0, "TESTS")
from pathlib import Path
from kit.runs import make_runner, run_all
from nanoinfer.sampling_params import SamplingParams
params = [SamplingParams(temperature=t, max_tokens=2, seed=1, ignore_eos=True) for t in (0, 1)]
outputs = []
for backend in ("torch", "triton"):
    settings = {"attention_backend": backend, "kvcache_block_size": 16, "device": "cpu"}
    runner = make_runner(Path("FOLDER"), {"num_hidden_layers": 1}, **settings)
    outputs.append(run_all(runner, [[5, 9, 2] * 7, [7]], params))
assert outputs[0] == outputs[1], outputs
"""


def run(code):
    """A process without the variable that the kernel tests set."""
    code = f"import os; os.environ.pop('TRITON_INTERPRET', None)\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_kernel_with_a_loop_runs():
    result = run(KERNEL)
    assert result.returncode == 0, result.stderr


def test_an_engine_runs_through_it_when_the_variable_is_set(tmp_path):
    result = run(ENGINE.replace("FOLDER", str(tmp_path)).replace("TESTS", str(Path(__file__).parent.parent)))
    assert result.returncode == 0, result.stderr


def test_too_late_is_refused():
    result = run(TOO_LATE)
    assert "restart the kernel" in result.stderr
