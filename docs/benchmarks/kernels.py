"""How fast is each Triton kernel, against the memory it has to move and against the same work in PyTorch?

The shapes are those of Qwen3-0.6B decoding in bfloat16: 1, 32 and 256 rows, 1,024 tokens of context each. Prefill
attention gets one prompt of 1,024 tokens, or 32. Times are medians over CUDA events, with the L2 cache cleared before
each run, and include what a kernel's wrapper allocates but no captured graph's savings. Every kernel's output is
compared with PyTorch's before it is timed; a difference beyond rounding ends the run.

Bytes are the least that must be moved: inputs and weights read once, outputs written once.

usage: python docs/benchmarks/kernels.py [--rows 1 32 256] [--context 1024] [--out PATH]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import machine
from torch import Tensor

SEED = 0
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCAB = 1024, 16, 8, 128, 3072, 151_936
EPS, SCALE, BLOCK_SIZE = 1e-6, 128**-0.5, 256
PLACE = {"dtype": torch.bfloat16, "device": "cuda"}
TOLERANCE = 2e-2  # relative, of the norm of the difference: bfloat16 results of two ways to round


@dataclass(frozen=True)
class Case:
    """One kernel at one size. `bytes` is what it must move; `runs` are the ways to do it, ours first, each giving the
    tensor that is compared, or None where there is nothing to compare."""

    name: str
    rows: int
    bytes: int
    runs: dict[str, Callable[[], Tensor | None]]
    exact: bool = False


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, **PLACE)  # type: ignore[call-overload, no-any-return]


def bytes_of(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def norm_cases(rows: int) -> Iterator[Case]:
    from nanoinfer.kernels.norm import add_rms_norm, rms_norm

    x, residual, weight = random(rows, HIDDEN), random(rows, HIDDEN), random(HIDDEN)
    runs = {
        "triton": lambda: rms_norm(x, weight, EPS),
        "torch": lambda: F.rms_norm(x, (HIDDEN,), weight, EPS),
    }
    yield Case("rms_norm", rows, bytes_of(x, x, weight), runs)
    ours = residual.clone()

    def torch_add() -> Tensor:
        total = residual + x
        return F.rms_norm(total, (HIDDEN,), weight, EPS)

    # Ours adds to `ours` again and again; only the first result is compared, and time does not depend on the values.
    runs = {"triton": lambda: add_rms_norm(x, ours, weight, EPS), "torch": torch_add}
    yield Case("add_rms_norm", rows, bytes_of(x, residual, residual, x, weight), runs)


def activation_case(rows: int) -> Case:
    from nanoinfer.kernels.activation import silu_mul

    gate_up = random(rows, 2 * INTERMEDIATE)

    def in_torch() -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    moved = bytes_of(gate_up) * 3 // 2
    return Case("silu_mul", rows, moved, {"triton": lambda: silu_mul(gate_up), "torch": in_torch})


def rotary_case(rows: int, context: int) -> Case:
    from nanoinfer.kernels.rotary_store import norm_rope_store
    from nanoinfer.models.layers import RotaryEmbedding, rotate

    rotary = RotaryEmbedding(HEAD_DIM, context, 1e6, torch.device("cuda"))
    qkv = random(rows, (HEADS + 2 * KV_HEADS) * HEAD_DIM)
    ours, q_weight, k_weight = qkv.clone(), random(HEAD_DIM), random(HEAD_DIM)
    positions = torch.randint(context, (rows,), device="cuda")
    cache = random(4 * rows, 2, KV_HEADS, HEAD_DIM)
    slots = torch.randperm(4 * rows, device="cuda")[:rows]
    key_cache, value_cache = cache.unbind(1)
    tables = rotary.cos, rotary.sin, positions, slots

    def in_triton() -> Tensor:  # in place: only the first result is compared
        norm_rope_store(ours, q_weight, k_weight, EPS, *tables, key_cache, value_cache)
        return ours

    def in_torch() -> Tensor:
        heads = qkv.view(rows, -1, HEAD_DIM)
        q, k, v = heads.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
        rotation = rotary.at(positions)
        q = rotate(F.rms_norm(q, (HEAD_DIM,), q_weight, EPS), *rotation)
        k = rotate(F.rms_norm(k, (HEAD_DIM,), k_weight, EPS), *rotation)
        cache.index_copy_(0, slots, torch.stack((k, v), dim=1))
        return torch.cat((q, k, v), dim=1).flatten(1)

    written = (HEADS + KV_HEADS) + 2 * KV_HEADS
    moved = bytes_of(qkv) + rows * written * HEAD_DIM * 2 + rows * HEAD_DIM * 4
    return Case("norm_rope_store", rows, moved, {"triton": in_triton, "torch": in_torch})


def sampling_cases(rows: int) -> Iterator[Case]:
    from nanoinfer.kernels.sampling import sample
    from nanoinfer.runner.draws import exponential, request_key, splitmix64

    logits = random(rows, VOCAB)
    temperatures = torch.full((rows,), 0.6, device="cuda")
    keys = torch.tensor([request_key(SEED, None, row) for row in range(rows)], device="cuda")
    draws = torch.arange(rows, device="cuda")
    tokens = torch.arange(VOCAB, device="cuda")

    def in_torch() -> Tensor:
        scaled = logits.float()
        scaled = (scaled - scaled.max(dim=-1, keepdim=True).values) / temperatures.unsqueeze(1)
        times = exponential(splitmix64(splitmix64(keys, draws).unsqueeze(1), tokens))
        return (scaled - times.log()).argmax(dim=-1)

    runs = {"triton": lambda: sample(logits, temperatures, keys, draws), "torch": in_torch}
    yield Case("sample", rows, bytes_of(logits), runs, exact=True)
    cold = torch.zeros_like(temperatures)
    runs = {"triton": lambda: sample(logits, cold, keys, draws), "torch": lambda: logits.argmax(dim=-1)}
    yield Case("sample (greedy)", rows, bytes_of(logits), runs, exact=True)


def paged_context(rows: int, context: int) -> tuple[Tensor, Tensor, Tensor]:
    """A layer's cache [num_slots, 2, kv_heads, head_dim], block tables in random order, and context lengths."""
    blocks = -(-context // BLOCK_SIZE)
    cache = random(rows * blocks * BLOCK_SIZE, 2, KV_HEADS, HEAD_DIM)
    tables = torch.randperm(rows * blocks, device="cuda").int().view(rows, blocks)
    return cache, tables, torch.full((rows,), context, dtype=torch.int32, device="cuda")


def flash_attention(cache: Tensor, tables: Tensor, context_lens: Tensor, query: Tensor) -> Callable[[], Tensor] | None:
    """The same attention by flash-attn, where it is installed. query: [rows, queries, heads, head_dim]."""
    try:
        from flash_attn import flash_attn_with_kvcache
    except ImportError:
        return None
    # Its blocks need keys and values in tensors of their own, so it gets a copy.
    key, value = (part.contiguous().view(-1, BLOCK_SIZE, KV_HEADS, HEAD_DIM) for part in cache.unbind(1))
    options = {"cache_seqlens": context_lens, "block_table": tables, "softmax_scale": SCALE, "causal": True}
    return lambda: flash_attn_with_kvcache(query, key, value, **options).flatten(0, 1)  # type: ignore[no-any-return]


def gathered(cache: Tensor, tables: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Keys and values [rows, heads, context, head_dim], as PyTorch's attention wants them."""
    slots = (tables.long()[:, :, None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE, device="cuda")).flatten(1)
    key, value = cache[slots[:, :context]].unbind(2)
    return key.transpose(1, 2), value.transpose(1, 2)


def decode_case(rows: int, context: int) -> Case:
    from nanoinfer.kernels.paged_decode import paged_decode

    cache, tables, context_lens = paged_context(rows, context)
    query = random(rows, HEADS, HEAD_DIM)
    key_cache, value_cache = cache.unbind(1)
    places = tables, context_lens, BLOCK_SIZE, context

    def in_torch() -> Tensor:
        """The query heads of a kv head stand where queries are expected, so that keys are read once for them."""
        key, value = gathered(cache, tables, context)
        out = F.scaled_dot_product_attention(query.view(rows, KV_HEADS, -1, HEAD_DIM), key, value, scale=SCALE)
        return out.reshape(rows, HEADS, HEAD_DIM)

    runs: dict[str, Callable[[], Tensor | None]] = {
        "triton": lambda: paged_decode(query, key_cache, value_cache, *places, SCALE),
        "torch": in_torch,
    }
    if flash := flash_attention(cache, tables, context_lens, query.unsqueeze(1)):
        runs["flash_attn"] = flash
    moved = bytes_of(query, query) + rows * context * 2 * KV_HEADS * HEAD_DIM * 2
    return Case("paged_decode", rows, moved, runs)


def prefill_case(rows: int, context: int) -> Case:
    from nanoinfer.kernels.paged_prefill import paged_prefill

    cache, tables, context_lens = paged_context(rows, context)
    query = random(rows * context, HEADS, HEAD_DIM)
    key_cache, value_cache = cache.unbind(1)
    starts = torch.arange(rows + 1, dtype=torch.int32, device="cuda") * context
    places = tables, starts, context_lens, context, BLOCK_SIZE

    def in_torch() -> Tensor:
        key, value = gathered(cache, tables, context)
        q = query.view(rows, context, HEADS, HEAD_DIM).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, key, value, is_causal=True, scale=SCALE, enable_gqa=True)
        return out.transpose(1, 2).flatten(0, 1)

    runs: dict[str, Callable[[], Tensor | None]] = {
        "triton": lambda: paged_prefill(query, key_cache, value_cache, *places, SCALE),
        "torch": in_torch,
    }
    if flash := flash_attention(cache, tables, context_lens, query.view(rows, context, HEADS, HEAD_DIM)):
        runs["flash_attn"] = flash
    moved = bytes_of(query, query) + rows * context * 2 * KV_HEADS * HEAD_DIM * 2
    return Case("paged_prefill", rows, moved, runs)


def cases(row_counts: list[int], context: int) -> Iterator[Case]:
    """One at a time: the largest holds a gigabyte, which is gone before the next is made."""
    for rows in row_counts:
        yield from norm_cases(rows)
        yield activation_case(rows)
        yield rotary_case(rows, context)
        yield from sampling_cases(rows)
        yield decode_case(rows, context)
        if rows <= 32:
            yield prefill_case(rows, context)


def check(case: Case) -> None:
    """Raises RuntimeError where a way's output is not the first one's."""
    outputs = {name: run() for name, run in case.runs.items()}
    ours = outputs["triton"]
    for name, other in outputs.items():
        if ours is None or other is None:
            continue
        if case.exact:
            wrong = (ours != other).double().mean().item()
            allowed = 0.04  # two candidates within the rounding of a logarithm, or equal bfloat16 logits
        else:
            wrong = (torch.linalg.vector_norm(ours.double() - other.double()) / other.double().norm()).item()
            allowed = TOLERANCE
        if not wrong <= allowed:
            raise RuntimeError(f"{case.name}, {case.rows} rows: triton and {name} differ by {wrong:.3g}")


def measure(case: Case, budget_ms: int) -> dict[str, Any]:
    """Median microseconds of each way, with the bandwidth of ours and its ratio to PyTorch."""
    from triton.testing import do_bench

    times = {}
    for name, run in case.runs.items():
        samples = do_bench(run, warmup=budget_ms // 4, rep=budget_ms, return_mode="all")
        times[name] = statistics.median(samples) * 1000
    return {
        "kernel": case.name,
        "rows": case.rows,
        "bytes": case.bytes,
        "microseconds": {name: round(value, 2) for name, value in times.items()},
        "terabytes_per_second": round(case.bytes / times["triton"] / 1e6, 3),
        "speedup_over_torch": round(times["torch"] / times["triton"], 2),
    }


def show(result: dict[str, Any]) -> None:
    times = "  ".join(f"{name} {value:9.1f} us" for name, value in result["microseconds"].items())
    print(
        f"{result['kernel']:<16} {result['rows']:>4} rows  {result['bytes'] / 1e6:9.2f} MB "
        f"{result['terabytes_per_second']:6.3f} TB/s  x{result['speedup_over_torch']:<7.2f} {times}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32, 256], help="batch sizes (default: %(default)s)")
    parser.add_argument("--context", type=int, default=1024, help="tokens of each row (default: %(default)s)")
    parser.add_argument("--budget-ms", type=int, default=100, help="time of each measurement (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="write the results there as JSON, with machine, versions and seed")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("needs an NVIDIA GPU and a PyTorch with CUDA; torch.cuda.is_available() is False", file=sys.stderr)
        return 1
    torch.manual_seed(SEED)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; TB/s and speedup are of the Triton kernel")
    results = []
    for case in cases(arguments.rows, arguments.context):
        check(case)
        results.append(measure(case, arguments.budget_ms))
        show(results[-1])
    if arguments.out:
        document = {"benchmark": "kernels", "seed": SEED, "machine": machine()}
        document |= {"gpu": torch.cuda.get_device_name(), "context": arguments.context, "results": results}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")
        print(f"evidence: {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
