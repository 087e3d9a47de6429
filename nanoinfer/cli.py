"""The command line: demo, generate, trace, bench, lab, course.

Exit codes: 0 done, 1 the work failed (one line on stderr says why), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from nanoinfer import __version__
from nanoinfer.bench import options as bench_options
from nanoinfer.course import cli as course_cli
from nanoinfer.extras import EXTRAS, MissingExtra, how_to_install, missing, require

if TYPE_CHECKING:
    from nanoinfer.trace.trace import Trace


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    command_line = shlex.join(["nanoinfer", *(sys.argv[1:] if argv is None else argv)])
    arguments = _parser().parse_args(argv, argparse.Namespace(command_line=command_line))
    try:
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        print("nanoinfer: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        return 0
    except (ValueError, TypeError, RuntimeError, OSError, IndexError, MissingExtra) as error:
        print(f"nanoinfer: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nanoinfer", description="The inference engine that tells you why.")
    parser.add_argument("--version", action="version", version=f"nanoinfer {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_generate(commands)
    _add_trace(commands)
    _add_bench(commands)
    _add_lab(commands)
    course_cli.add_arguments(_command(commands, "course", None, course_cli.SUMMARY, course_cli.EXAMPLE))
    return parser


def _command(commands: Any, name: str, run: Any, summary: str, example: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary, epilog=f"example: {example}"
    )
    command.set_defaults(run=run)
    return command


# ---- demo ---------------------------------------------------------------------------------


def _add_demo(commands: Any) -> None:
    summary = "Run the shipped model in a KV cache too small for the work and show every decision."
    command = _command(commands, "demo", _demo, summary, "nanoinfer demo --policy mixed")
    command.add_argument("--policy", default="prefill_first", help="scheduling policy (default: %(default)s)")
    command.add_argument("--blocks", type=int, help="KV blocks in the pool; fewer means more preemptions")
    command.add_argument(
        "--out", type=Path, default=Path("demo-trace.jsonl"), help="where to write the trace (default: %(default)s)"
    )


def _demo(arguments: argparse.Namespace) -> int:
    from nanoinfer.demo import LEGEND, SETTINGS, answered, conversations, simulated
    from nanoinfer.trace.text import summary, text_timeline

    _check_folder(arguments.out)
    settings = SETTINGS | {"policy": arguments.policy}
    if arguments.blocks is not None:
        settings["num_kvcache_blocks"] = arguments.blocks
    absent = missing(*EXTRAS["engine"])
    if absent:
        print(f"Simulated: {absent} is not installed, so no model runs. The requests are as long as the model's, their")
        print(f"tokens are made up, and the scheduler decides the same. For the model: {how_to_install(absent)}\n")
    trace = simulated(settings) if absent else answered(settings)
    trace.save(arguments.out)
    print(LEGEND)
    print(*text_timeline(trace), sep="\n")
    if not absent:
        print("\nWhat the model said:\n")
        for conversation, output in zip(conversations(), trace.outputs, strict=True):
            print(f"  {output['request_id']}  {conversation[-1]['content']}\n     {output['text']}")
    print()
    print(*summary(trace), sep="\n")
    step = next((s.index for s in trace.steps if s.preempted), len(trace.steps) - 1)
    print(f"\nWhy step {step} went as it did:\n{indent(trace.explain(step), '  ')}")
    print(f"\nTrace written to {arguments.out}. Ask about any step: nanoinfer trace {arguments.out} --step {step}")
    return 0


# ---- generate -----------------------------------------------------------------------------


def _add_generate(commands: Any) -> None:
    summary = "Complete prompts, or answer them with --chat."
    command = _command(
        commands, "generate", _generate, summary, 'nanoinfer generate --chat --temperature 0 "What is a KV cache?"'
    )
    command.add_argument("prompts", nargs="*", metavar="PROMPT", help="one or more; without any, lines of stdin")
    command.add_argument("--model", default="tiny", help="directory, hub id or tiny (default: %(default)s)")
    command.add_argument("--chat", action="store_true", help="put each prompt through the model's chat template")
    command.add_argument("--system", metavar="TEXT", help="with --chat: a system message in front of each prompt")
    command.add_argument(
        "--max-tokens", type=int, default=128, help="most new tokens per prompt (default: %(default)s)"
    )
    command.add_argument("--temperature", type=float, default=0.7, help="0 is greedy (default: %(default)s)")
    command.add_argument("--top-k", type=int, default=0, help="keep the k most likely tokens; 0 keeps all")
    command.add_argument("--top-p", type=float, default=1.0, help="keep tokens up to this probability (default: 1)")
    command.add_argument("--seed", type=int, help="makes each prompt's draw repeatable")
    command.add_argument("--policy", default="prefill_first", help="scheduling policy (default: %(default)s)")
    command.add_argument("--json", action="store_true", help="print one JSON object per prompt")
    command.add_argument("--trace", type=Path, metavar="FILE", help="record the run to FILE (.jsonl or .jsonl.gz)")


def _generate(arguments: argparse.Namespace) -> int:
    from nanoinfer import LLM, SamplingParams

    _check_folder(arguments.trace)
    prompts = arguments.prompts or _prompts_from_stdin()
    params = SamplingParams(
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        max_tokens=arguments.max_tokens,
        seed=arguments.seed,
    )
    with LLM(arguments.model, policy=arguments.policy) as llm:
        if arguments.chat:
            system = [{"role": "system", "content": arguments.system}] if arguments.system else []
            chats = [[*system, {"role": "user", "content": prompt}] for prompt in prompts]
            trace = llm.chat(chats, params, record=True)
        else:
            trace = llm.generate(prompts, params, record=True)
    for prompt, output in zip(prompts, trace.outputs, strict=True):
        if arguments.json:
            print(json.dumps(output))
        else:
            print(f"--- {prompt}\n{output['text']}" if len(prompts) > 1 else output["text"])
    if arguments.trace:
        trace.save(arguments.trace)
    return 0


def _prompts_from_stdin() -> list[str]:
    if sys.stdin.isatty():
        print("Prompts, one a line; end with Ctrl-D:", file=sys.stderr)
    prompts = [line.strip() for line in sys.stdin if line.strip()]
    if not prompts:
        raise ValueError("no prompt: give one as an argument, or lines on stdin")
    return prompts


def _check_folder(path: Path | None) -> None:
    """Find out before the work, not after it, that its result cannot be written."""
    if path and not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")


# ---- trace --------------------------------------------------------------------------------


def _add_trace(commands: Any) -> None:
    summary = "Summarise a recorded trace, explain its steps, or export it."
    command = _command(commands, "trace", _trace, summary, "nanoinfer trace demo-trace.jsonl --step 7")
    command.add_argument("file", type=Path, metavar="FILE", help="a trace written by save() or --out")
    command.add_argument("--step", type=int, metavar="N", help="explain step N in words (negative counts from the end)")
    command.add_argument("--timeline", action="store_true", help="print one line per step")
    command.add_argument("--perfetto", type=Path, metavar="OUT", help="write Chrome trace events for ui.perfetto.dev")


def _trace(arguments: argparse.Namespace) -> int:
    from nanoinfer import Trace
    from nanoinfer.trace.text import summary, text_timeline

    trace: Trace = Trace.load(arguments.file)
    if arguments.step is not None:
        print(trace.explain(arguments.step))
    if arguments.timeline:
        print(*text_timeline(trace), sep="\n")
    if arguments.perfetto:
        _check_folder(arguments.perfetto)
        trace.to_perfetto(arguments.perfetto)
        print(f"Written to {arguments.perfetto}; open it at ui.perfetto.dev.", file=sys.stderr)
    if arguments.step is None and not arguments.timeline and not arguments.perfetto:
        print(*summary(trace), sep="\n")
    return 0


# ---- bench --------------------------------------------------------------------------------


def _add_bench(commands: Any) -> None:
    bench_options.add_arguments(_command(commands, "bench", _bench, bench_options.SUMMARY, bench_options.EXAMPLE))


def _bench(arguments: argparse.Namespace) -> int:
    for path in (arguments.out, arguments.plot, arguments.profile):
        _check_folder(path)
    require("nanoinfer bench", *EXTRAS["engine"])
    from nanoinfer.bench.run import run

    return run(arguments)


# ---- lab ----------------------------------------------------------------------------------


def _add_lab(commands: Any) -> None:
    summary = "Open JupyterLab on the notebooks."
    command = _command(commands, "lab", _lab, summary, "nanoinfer lab -- --no-browser --port 8890")
    command.add_argument("--dir", type=Path, help="folder to open (default: the notebooks of this checkout)")
    command.add_argument("options", nargs="*", metavar="OPTION", help="after --: passed on to jupyter lab")


def _lab(arguments: argparse.Namespace) -> int:
    root = Path(__file__).parent.parent
    folder = arguments.dir or root / "notebooks"
    if not folder.is_dir():
        raise ValueError(f"no folder {folder}; notebooks come with a checkout of the project, name one with --dir")
    require("nanoinfer lab", "jupyterlab")
    # JupyterLab follows no link out of its root, and the notebooks link to the pages in docs/.
    tour = [f"--ServerApp.root_dir={root}", "--LabApp.default_url=/lab/tree/notebooks/00_tour.ipynb"]
    where = [str(folder)] if arguments.dir else tour
    return subprocess.call([sys.executable, "-m", "jupyterlab", *where, *arguments.options])
