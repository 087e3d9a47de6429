"""Triton kernels without a GPU: its interpreter runs them on the CPU, slowly, one program after the other."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any


def is_interpreting() -> bool:
    """Whether Triton, which must be installed, runs kernels in its interpreter in this process."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


def triton_interpreter() -> bool:
    """Switch Triton's interpreter on, before anything has imported triton; whether triton is installed.

    Raises:
        RuntimeError: triton was imported without its interpreter, which cannot be changed any more.
    """
    if find_spec("triton") is None:
        return False
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("triton was imported before its interpreter was switched on; restart the kernel")
    os.environ["TRITON_INTERPRET"] = "1"
    repair_interpreter()
    return True


def repair_interpreter() -> None:
    """Make good what our kernels miss in the interpreter; a second call does nothing.

    Loop bounds are arrays of one number there, which NumPy 2.4 takes for no number, and it has no functions of CUDA's
    library. bfloat16 stays wrong: the interpreter multiplies its bit patterns.
    """
    import triton.language as tl
    from triton.language.extra.cuda import libdevice
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor
    if getattr(original, "reads_loop_bounds", False):
        return

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    patch.reads_loop_bounds = True  # type: ignore[attr-defined]
    interpreter._patch_lang_tensor = patch
    libdevice.fast_log2f = lambda x: tl.log2(x)
