"""`nanoinfer bench`, from its options to its results: draw the work, measure, tell.

One engine holds the device at a time: this one is measured and closed before a peer is built.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nanoinfer import LLM, EngineConfig
from nanoinfer.bench import report
from nanoinfer.bench.engines import PeerSettings, check_peer, generate_with, make_peer, release_memory
from nanoinfer.bench.measure import Generate, Runs, Work, time_runs, work_a, works_b
from nanoinfer.bench.profiler import profile_decode
from nanoinfer.bench.roofline import Bandwidth, measure_bandwidth, model_bytes
from nanoinfer.bench.startup import measure_startup
from nanoinfer.engine.checkpoint import TINY, resolve_model
from nanoinfer.extras import require
from nanoinfer.models.config import load_config
from nanoinfer.runner.device import DTYPES, resolve_device

SHAPES = Path(__file__).parent / "shapes"
TERA = 1e12


def run(options: argparse.Namespace) -> int:
    """Everything the options ask for. Raises ValueError or RuntimeError, before any measurement where possible."""
    works = draw_works(options)
    if options.repeat < 1:
        raise ValueError(f"--repeat must be at least 1, got {options.repeat}")
    if options.against:
        check_peer(options.against)
    if options.plot:
        require("nanoinfer bench --plot", "matplotlib")
        from nanoinfer.bench.plot import check_format, plot

        check_format(options.plot)
    evidence = measure(options, works)
    print(*report.lines(evidence), sep="\n")
    if options.plot:
        plot(evidence, options.plot)
        print(f"plot: {options.plot}")
    if options.out:
        options.out.write_text(json.dumps(evidence, indent=1) + "\n", encoding="utf-8")
        print(f"evidence: {options.out}")
    return 0


def draw_works(options: argparse.Namespace) -> list[Work]:
    """The works that the options name. Raises ValueError for an unknown one or a bad number."""
    sizes = {"--requests": options.requests, "--input-len": options.input_len, "--output-len": options.output_len}
    if options.work not in ("A", "B"):
        raise ValueError(f"--work must be A or B, got {options.work!r}")
    if options.work == "B":
        lens = (
            512 if options.input_len is None else options.input_len,
            256 if options.output_len is None else options.output_len,
        )
        return works_b(options.seed, batch_sizes(options.requests or "32"), *lens)
    if given := [name for name, value in sizes.items() if value is not None]:
        raise ValueError(f"{', '.join(given)}: work A has its own sizes; leave it out, or use --work B")
    return [work_a(options.seed)]


def batch_sizes(text: str) -> list[int]:
    """Numbers between commas. Raises ValueError for anything else."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--requests must be numbers with commas between them, such as 1,32,256, got {text!r}"
        ) from None


def model_of(options: argparse.Namespace) -> str:
    """What LLM takes as a model. Raises ValueError for an unknown shape; lists the known ones."""
    if options.shape is None:
        return options.model or TINY
    known = sorted(path.name for path in SHAPES.iterdir())
    if options.shape not in known:
        raise ValueError(f"--shape must be one of {', '.join(known)}, got {options.shape!r}")
    return str(SHAPES / options.shape)


def engine_settings(options: argparse.Namespace, works: list[Work]) -> dict[str, Any]:
    """Fields of EngineConfig: what was given, and room for the longest request."""
    names = EngineConfig.__dataclass_fields__.keys() - {"model"}
    given = {name: value for name, value in vars(options).items() if name in names and value is not None}
    return given | {
        "seed": options.seed,
        "load_format": "auto" if options.shape is None else "dummy",
        "max_model_len": max(EngineConfig.max_model_len, *(work.longest for work in works)),
    }


def measure(options: argparse.Namespace, works: list[Work]) -> dict[str, Any]:
    """Measure this engine, then the peer; the evidence document."""
    model, settings = model_of(options), engine_settings(options, works)
    model_dir = resolve_model(model)
    device = resolve_device(EngineConfig(**settings).device).type
    startup = measure_startup(model, settings) if options.startup else None
    bandwidth = bandwidth_of(options, device)
    peer_turns = (options.repeat + 1) * len(works) if options.against else 0
    turns = (options.repeat + 1) * len(works) * (2 if options.record else 1) + peer_turns
    with tqdm(total=turns, desc="measuring", unit="run", disable=None) as bar:
        runs, config, profiled = measure_ours(options, works, LLM(model, **settings), bar)
        if options.against:
            settings_of_peer = PeerSettings(model_dir, config, options.temperature)
            for ours, theirs in zip(runs, measure_peer(options, works, settings_of_peer, bar), strict=True):
                ours.update(theirs)
    sizes = model_bytes(load_config(model_dir), DTYPES[config.dtype].itemsize)
    limits = (sizes, bandwidth, config.max_num_seqs, config.tensor_parallel_size)
    return {
        "command": options.command_line,
        "model": options.shape or options.model or TINY,
        "seed": options.seed,
        "temperature": options.temperature,
        "machine": report.machine(device),
        "versions": report.versions(),
        "engine": config.to_dict() | {"model": options.shape or options.model or TINY},
        "bandwidth": asdict(bandwidth),
        "model_bytes": asdict(sizes),
        "cases": [report.case(work, runs_of_it, *limits) for work, runs_of_it in zip(works, runs, strict=True)],
        "startup": startup,
        "profile": profiled,
    }


def bandwidth_of(options: argparse.Namespace, device: str) -> Bandwidth:
    """The bandwidth that was given, or the device's, measured. Raises ValueError for one not positive or not finite."""
    if options.bandwidth is None:
        return measure_bandwidth(device)
    if not 0 < options.bandwidth < inf:
        raise ValueError(f"--bandwidth must be a finite number above 0 TB/s, got {options.bandwidth}")
    return Bandwidth(options.bandwidth * TERA, "given")


def measure_ours(
    options: argparse.Namespace, works: list[Work], llm: LLM, bar: Any
) -> tuple[list[dict[str, Runs]], EngineConfig, dict[str, Any] | None]:
    """Every work on this engine, which is closed afterwards; its resolved settings; the profile if wanted."""
    with llm:
        check_lengths(works, llm.config.max_model_len)
        vocab_size = llm.config.vocab_size or 0
        engines = {report.OURS: generate_with(llm, options.temperature, record=False)}
        if options.record:
            engines[report.RECORDING] = generate_with(llm, options.temperature, record=True)
        runs = [time_runs(engines, work, vocab_size, options.repeat, bar.update) for work in works]
        profiled = None
        if options.profile is not None:
            largest = max(works, key=lambda work: len(work.prompts))
            file = options.profile if options.profile.name else None
            profiled = profile_decode(llm, largest, options.temperature, file)
    release_memory()
    return runs, llm.config, profiled


def measure_peer(
    options: argparse.Namespace, works: list[Work], settings: PeerSettings, bar: Any
) -> list[dict[str, Runs]]:
    """Every work on the peer, with the same prompts."""
    peer = make_peer(options.against, settings)
    vocab_size = settings.config.vocab_size or 0
    try:
        engines: dict[str, Generate] = {options.against: peer.generate}
        return [time_runs(engines, work, vocab_size, options.repeat, bar.update) for work in works]
    finally:
        peer.close()


def check_lengths(works: list[Work], max_model_len: int) -> None:
    """Refuse what the model has no positions for: it would end early, and count fewer tokens."""
    longest = max(work.longest for work in works)
    if longest > max_model_len:
        raise ValueError(
            f"the longest request has {longest} tokens, prompt and output together, but the model has positions for "
            f"{max_model_len}; use a smaller --input-len or --output-len"
        )
