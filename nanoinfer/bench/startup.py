"""How long a new process needs from constructing the engine to its first token, with nothing compiled before.

`measure_startup` starts this file as a program of its own, with compile caches in a folder that is empty.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

PROMPT = list(range(1, 17))


def measure_startup(model: str, settings: dict[str, Any]) -> dict[str, float]:
    """Seconds of each part of a start in a fresh process.

    Returns:
        "imports" (torch and the engine), "construction" (weights, cache, graphs), "first_token" (one prompt of 16
        tokens), and "total", which is construction and first token.

    Raises:
        RuntimeError: the process failed; gives its last line.
    """
    with tempfile.TemporaryDirectory(prefix="nanoinfer-bench-") as caches:
        folders = {name: str(Path(caches) / name) for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")}
        command = [sys.executable, "-m", "nanoinfer.bench.startup", model, json.dumps(settings)]
        done = subprocess.run(command, env=os.environ | folders, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"the start in a fresh process failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
        )
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


def start(model: str, settings: dict[str, Any]) -> dict[str, float]:
    """Start an engine here and now; see `measure_startup`."""
    times = [time.perf_counter()]
    from nanoinfer import LLM, SamplingParams

    times.append(time.perf_counter())
    with LLM(model, **settings) as llm:
        times.append(time.perf_counter())
        llm.generate([PROMPT], SamplingParams(max_tokens=1, ignore_eos=True), use_tqdm=False)
        times.append(time.perf_counter())
    imports, construction, first_token = (b - a for a, b in pairwise(times))
    return {
        "imports": imports,
        "construction": construction,
        "first_token": first_token,
        "total": construction + first_token,
    }


if __name__ == "__main__":
    print(json.dumps(start(sys.argv[1], json.loads(sys.argv[2]))))
