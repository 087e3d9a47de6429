"""What nanoinfer does with xxhash alone: `python -P tests/base_alone.py FOLDER` in an environment of just these two.

Everything the base promises is done once, and whatever needs an extra is called once to see that it names it. Files
are written to FOLDER.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import nanoinfer
from nanoinfer import SamplingParams, Trace, cli, compare, simulate
from nanoinfer.course import predict
from nanoinfer.extras import EXTRAS, MissingExtra


def runs() -> tuple[Trace, Trace]:
    """Two policies at one workload under memory pressure."""
    prompts = [[*range(12), 100 + i, *range(i)] for i in range(6)]
    settings = {"kvcache_block_size": 4, "num_kvcache_blocks": 16, "max_num_batched_tokens": 16}
    params, arrivals = SamplingParams(max_tokens=9), [0, 0, 1, 1.5, 4, 30]
    default = simulate(prompts, params, arrivals=arrivals, **settings)
    return default, simulate(prompts, params, arrivals=arrivals, policy="mixed", **settings)


def main(folder: Path) -> None:
    installed = [name for name in (*sum(EXTRAS.values(), ()), "numpy", "tqdm", "pyarrow") if find_spec(name)]
    assert not installed, f"this environment has more than the base: {installed}"
    views(folder)
    commands(folder)
    refusals(folder)


def views(folder: Path) -> None:
    a, b = runs()
    a.save(folder / "a.jsonl.gz")
    assert Trace.load(folder / "a.jsonl.gz") == a
    assert a.metrics()["num_preemptions"] > 0
    assert all(f"tep {i} " in a.explain(i) for i in range(len(a.steps)))
    a.to_perfetto(folder / "a.json")
    a.to_html(folder / "one.html")
    both = compare(a, b)
    assert both.figures()["num_requests", ""] == (6, 6)
    both.to_html(folder / "both.html")
    for page in (a.explore(step=3, select=2), both.explore()):
        forms = page._repr_mimebundle_()
        assert forms.keys() == {"text/html", "text/plain"}
        assert "<img" not in forms["text/html"].partition("<iframe")[0]
        assert "preemptions" in forms["text/plain"]


def commands(folder: Path) -> None:
    demo = str(folder / "demo.jsonl")
    printed, _ = run("demo", "--out", demo)
    assert printed.startswith("Simulated: torch is not installed")
    assert '-m pip install "nanoinfer[engine]"' in printed
    assert "preempted 3 (tail, 58 tokens lost)" in printed
    assert "What the model said" not in printed
    assert "chunk 1 of 2" in run("trace", demo, "--step", "0")[0]
    assert "197 prompt and 157 output tokens" in run("trace", demo)[0]


def refusals(folder: Path) -> None:
    a, b = runs()
    both = compare(a, b)
    for message, extra, call in (
        ("trace.timeline() needs matplotlib", "plots", a.timeline),
        ("trace.budget() needs matplotlib", "plots", a.budget),
        ("trace.block_map() needs matplotlib", "plots", lambda: a.block_map(0)),
        ("trace.queues() needs matplotlib", "plots", lambda: a.queues(0)),
        ("trace.animate() needs matplotlib", "plots", lambda: a.animate(folder / "a.gif")),
        ("trace.to_pandas() needs pandas", "plots", a.to_pandas),
        ("compare(a, b).metrics() needs pandas", "plots", both.metrics),
        ("compare(a, b).timeline() needs matplotlib", "plots", both.timeline),
        ("LLM needs torch", "engine", lambda: nanoinfer.LLM),
        ("LLMEngine needs torch", "engine", lambda: nanoinfer.LLMEngine),
        ("predict() needs IPython", "notebooks", lambda: predict("What is 1 + 1?", 2)),
    ):
        refused(message, extra, call)
    for command, message, extra in (
        (["generate", "hello"], "LLM needs torch", "engine"),
        (["bench"], "nanoinfer bench needs torch", "engine"),
        (["lab", "--dir", str(folder)], "nanoinfer lab needs jupyterlab", "notebooks"),
        (["course", "grade", "student.py"], "nanoinfer course grade needs pytest", "tests"),
        (["course", "release", str(folder / "copy")], "nanoinfer.course.grading needs pytest", "tests"),
    ):
        told = run(*command, code=1)[1]
        assert told.startswith(f"nanoinfer: {message}, which comes with: "), told
        assert told.endswith(f'-m pip install "nanoinfer[{extra}]"\n'), told


def refused(message: str, extra: str, call: Callable[[], object]) -> None:
    told = ""
    try:
        call()
    except MissingExtra as error:
        told = str(error)
    assert told.startswith(f"{message}, which comes with: "), f"{message!r} was to be said, not {told!r}"
    assert told.endswith(f'-m pip install "nanoinfer[{extra}]"'), told


def run(*command: str, code: int = 0) -> tuple[str, str]:
    """What a command prints, on both streams."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        ended = cli.main(command)
    assert ended == code, (command, ended, err.getvalue())
    return out.getvalue(), err.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
