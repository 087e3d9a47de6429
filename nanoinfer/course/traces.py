"""Record the runs that notebooks replay: `python -m nanoinfer.course.traces`.

A recording is a name and a function that makes the run anew, in seconds, on a CPU; some need a GPU and stay as they
are where there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from nanoinfer.course.gpu_step import VARIANTS, gpu_run
from nanoinfer.course.recordings import CHECKOUT
from nanoinfer.course.spike import latency_spike
from nanoinfer.trace.trace import Trace


def questions() -> Trace:
    """The five questions of the demonstration, answered by the shipped model."""
    from nanoinfer import LLM, SamplingParams
    from nanoinfer.demo import SETTINGS, conversations

    with LLM("tiny", device="cpu", **SETTINGS) as llm:
        greedy = SamplingParams(temperature=0, max_tokens=48)
        trace: Trace = llm.chat(conversations(), greedy, record=True, use_tqdm=False)
        return trace


RECORDINGS: dict[str, Callable[[], Trace]] = {
    "questions": questions,
    "latency_spike": latency_spike,
}
ON_A_GPU: dict[str, Callable[[], Trace]] = {name: partial(gpu_run, name) for name in VARIANTS}


def main(folder: Path = CHECKOUT) -> None:
    """Make every recording anew that this machine can make, and write it to `folder`."""
    import torch

    has_gpu = torch.cuda.is_available()
    if not has_gpu:
        print(f"no NVIDIA GPU here: {', '.join(ON_A_GPU)} are left as they are", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in (RECORDINGS | (ON_A_GPU if has_gpu else {})).items():
        path = folder / f"{name}.jsonl.gz"
        make().save(path)
        print(f"{path} {path.stat().st_size / 1000:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
