"""The arguments of `nanoinfer bench`. Imports nothing heavy: `nanoinfer --help` builds this parser too."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "Measure output tokens per second of this engine, and of a peer in the same run."
EXAMPLE = "nanoinfer bench --shape qwen3-0.6b --work B --requests 1,32,256 --record --out bench.json --plot bench.png"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Every option of the command, in groups."""
    _add_work(command.add_argument_group("the work"))
    _add_engine(command.add_argument_group("the model and the engine"))
    _add_measurements(command.add_argument_group("what is measured and written"))


def _add_work(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--work",
        default="B",
        metavar="A|B",
        help="A: 256 requests of 100-1024 prompt and 100-1024 output tokens, drawn as nano-vLLM's benchmark does; "
        "B: equal lengths (default: %(default)s)",
    )
    group.add_argument("--requests", metavar="N[,N...]", help="work B: batch sizes, measured in turn (default: 32)")
    group.add_argument("--input-len", type=int, metavar="N", help="work B: tokens of each prompt (default: 512)")
    group.add_argument("--output-len", type=int, metavar="N", help="work B: tokens of each output (default: 256)")
    group.add_argument("--temperature", type=float, default=0.6, help="0 is greedy (default: %(default)s)")
    group.add_argument("--seed", type=int, default=0, help="of prompts, lengths, weights, draws (default: %(default)s)")
    group.add_argument("--repeat", type=int, default=3, metavar="N", help="timed runs (default: %(default)s)")


def _add_engine(group: argparse._ArgumentGroup) -> None:
    """What is named as a field of EngineConfig sets that field (see `run.engine_settings`); None leaves its default."""
    model = group.add_mutually_exclusive_group()
    model.add_argument("--model", help="directory, hub id or tiny (default: tiny)")
    model.add_argument("--shape", metavar="NAME", help="random weights in a published shape, such as qwen3-0.6b")
    group.add_argument("--backend", dest="attention_backend", metavar="NAME", help="attention backend")
    group.add_argument("--dtype", help="auto, float32 or bfloat16")
    group.add_argument("--device", help="auto, cpu or cuda")
    group.add_argument("--tensor-parallel-size", type=int, metavar="N", help="devices that share the model")
    group.add_argument("--max-num-seqs", type=int, metavar="N", help="most sequences in a step")
    group.add_argument("--max-num-batched-tokens", type=int, metavar="N", help="most tokens in a step")
    group.add_argument("--kvcache-block-size", type=int, metavar="N", help="token slots in a KV block")
    group.add_argument("--gpu-memory-utilization", type=float, metavar="X", help="share of GPU memory, in (0, 1]")
    group.add_argument(
        "--overlap", action=argparse.BooleanOptionalAction, default=None, help="schedule ahead of the running step"
    )
    group.add_argument("--enforce-eager", action="store_true", default=None, help="never replay CUDA graphs")


def _add_measurements(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--record", action="store_true", help="also run with record=True, in turns; gives its cost")
    group.add_argument("--against", metavar="PEER", help="transformers or vllm, on the same prompts and lengths")
    group.add_argument(
        "--startup", action="store_true", help="time from construction to first token, fresh process, empty caches"
    )
    group.add_argument(
        "--profile",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="FILE",
        help="table of where a decode step's time goes; with FILE also a Chrome trace",
    )
    group.add_argument(
        "--bandwidth", type=float, metavar="TB/S", help="memory bandwidth of a device (default: measured)"
    )
    group.add_argument("--out", type=Path, metavar="FILE.json", help="write the evidence: every run, versions, device")
    group.add_argument("--plot", type=Path, metavar="FILE.png", help="draw throughput and byte floor by batch size")
