"""How fast is each Triton kernel, against the memory it has to move and against the same work in PyTorch?

The shapes are those of Qwen3-0.6B in bfloat16: decoding of 1, 32 and 256 rows with contexts of 1,024 tokens each, and
once more with ragged ones, of 100 to 1,500 tokens, the longest first. Prefill attention gets one prompt of 1,024
tokens, or 32. The kernel for one row's matrix products meets the matrices of a layer and the head, the one for a few
rows those whose product it gives in one part; `feed_tokens` reads a few hundred bytes a step and is left out.

Attention runs through the engine's own backends, so that keys and values lie as they do in the engine, and flash-attn,
where it is installed, reads the same cache. In prefill it takes the prompts' own keys and values, as it does there.

Times are medians over CUDA events, with the L2 cache cleared before each run, and include what a kernel's wrapper
allocates but no captured graph's savings. Every kernel's output is compared with PyTorch's before it is timed; a
difference beyond rounding ends the run. Bytes are the least that must be moved: inputs and weights read once, outputs
written once.

usage: python docs/benchmarks/kernels.py [--rows 1 32 256] [--context 1024] [--ragged 100 1500] [--out PATH]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import machine
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nanoinfer.bench.run import SHAPES
from nanoinfer.engine.checkpoint import resolve_model
from nanoinfer.kernels.interpreter import triton_interpreter
from nanoinfer.models.config import Qwen3Config, load_config
from nanoinfer.models.layers import RotaryEmbedding
from nanoinfer.models.ops import LayerCache, Ops
from nanoinfer.runner.attention import AttentionBatch, KeysThenValues, load, obstacle
from nanoinfer.runner.random_numbers import request_key
from nanoinfer.runner.sampler import race

SEED, MOST_PROMPTS = 0, 32
TOLERANCE = 2e-2  # relative, of the norm of the difference: bfloat16 results of two ways to round
MOST_OTHERS = 0.04  # share of other tokens: two candidates within the rounding of a logarithm, or equal logits
Run = Callable[[], Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Setting:
    """Whose shapes, and where; `block_size` is in token slots."""

    model: Qwen3Config
    device: str
    dtype: torch.dtype
    block_size: int

    @property
    def qkv_heads(self) -> int:
        return self.model.num_attention_heads + 2 * self.model.num_key_value_heads

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=self.dtype, device=self.device)

    def ints(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=self.device)

    def cache(self, blocks: int) -> LayerCache:
        """A layer's cache of so many blocks as the GPU backends lay it out, full of random numbers."""
        layout = KeysThenValues()
        heads, head_dim = self.model.num_key_value_heads, self.model.head_dim
        return layout.views(self.normal(*layout.kv_cache_shape(blocks, self.block_size, heads, head_dim)))


@dataclass(frozen=True)
class Case:
    """One kernel at one size. `bytes` is what it must move; `runs` are the ways to do it, "triton" and others, each
    giving what is compared. Where `exact`, that is token ids."""

    name: str
    rows: int
    bytes: int
    runs: Mapping[str, Run]
    exact: bool = False


def bytes_of(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


# ---- between the matrix products ----------------------------------------------------------


def norm_cases(at: Setting, rows: int) -> Iterator[Case]:
    from nanoinfer.kernels.norm import add_rms_norm, rms_norm

    hidden, eps, plain = at.model.hidden_size, at.model.rms_norm_eps, Ops()
    x, residual, weight = at.normal(rows, hidden), at.normal(rows, hidden), at.normal(hidden)
    runs: dict[str, Run] = {
        "triton": lambda: rms_norm(x, weight, eps),
        "torch": lambda: plain.rms_norm(x, weight, eps),
    }
    yield Case("rms_norm", rows, bytes_of(x, x, weight), runs)
    ours, theirs = residual.clone(), residual.clone()
    # Both add x again and again; only the first results are compared, and time does not depend on the values.
    runs = {
        "triton": lambda: (add_rms_norm(x, ours, weight, eps), ours),
        "torch": lambda: (plain.add_rms_norm(x, theirs, weight, eps), theirs),
    }
    yield Case("add_rms_norm", rows, bytes_of(x, residual, residual, x, weight), runs)


def activation_case(at: Setting, rows: int) -> Case:
    from nanoinfer.kernels.activation import silu_mul

    gate_up = at.normal(rows, 2 * at.model.intermediate_size)
    runs: dict[str, Run] = {"triton": lambda: silu_mul(gate_up), "torch": lambda: Ops().silu_mul(gate_up)}
    return Case("silu_mul", rows, bytes_of(gate_up) * 3 // 2, runs)


def rotary_case(at: Setting, rows: int, context: int) -> Case:
    from nanoinfer.kernels.ops import TritonOps

    model, head_dim = at.model, at.model.head_dim
    rotary = RotaryEmbedding(head_dim, context, model.rope_theta, torch.device(at.device))
    qkv = at.normal(rows, at.qkv_heads * head_dim)
    q_weight, k_weight = at.normal(head_dim), at.normal(head_dim)
    cache = at.cache(blocks=-(-4 * rows // at.block_size))
    positions = at.ints(torch.randint(context, (rows,)).tolist())
    slots = at.ints(torch.randperm(len(cache.key))[:rows].tolist())

    def way(ops: Ops) -> Run:
        """On a copy of q, k and v, which may be overwritten: only first results are compared. And on its own cache."""
        mine, written = qkv.clone(), KeysThenValues().views(cache.blocks.clone())

        def run() -> tuple[Tensor, ...]:
            rotation = ops.rotation(rotary.cos, rotary.sin, positions)
            parts = ops.norm_rotate_store(mine, q_weight, k_weight, model.rms_norm_eps, rotation, slots, written)
            return *parts, written.blocks

        return run

    kv_heads = model.num_key_value_heads
    written = (model.num_attention_heads + kv_heads) + 2 * kv_heads  # queries and keys in place, keys and values
    moved = bytes_of(qkv) + rows * head_dim * (written * qkv.element_size() + rotary.cos.element_size())
    return Case("norm_rope_store", rows, moved, {"triton": way(TritonOps()), "torch": way(Ops())})


def linear_cases(at: Setting, rows: int) -> Iterator[Case]:
    """Products with the matrices [out_features, in_features] of a layer and of the head, where a kernel is for them."""
    model = at.model
    attended = model.num_attention_heads * model.head_dim
    shapes = {
        "qkv": (at.qkv_heads * model.head_dim, model.hidden_size),
        "o": (model.hidden_size, attended),
        "gate_up": (2 * model.intermediate_size, model.hidden_size),
        "down": (model.hidden_size, model.intermediate_size),
        "head": (model.vocab_size, model.hidden_size),
    }
    for name, (out_features, in_features) in shapes.items():
        yield from linear_case(name, at.normal(rows, in_features), at.normal(out_features, in_features))


def linear_case(name: str, x: Tensor, weight: Tensor) -> Iterator[Case]:
    from nanoinfer.kernels.linear import linear_few_rows, linear_one_row, parts_of

    kernel = linear_one_row if len(x) == 1 else linear_few_rows
    if len(x) > 1 and parts_of(x, weight) != 1:
        return
    moved = bytes_of(weight, x) + len(x) * len(weight) * x.element_size()
    runs: dict[str, Run] = {"triton": lambda: kernel(x, weight), "torch": lambda: F.linear(x, weight)}
    yield Case(f"{kernel.__name__} {name}", len(x), moved, runs)


def sampling_cases(at: Setting, rows: int) -> Iterator[Case]:
    from nanoinfer.kernels.sampling import sample

    logits = at.normal(rows, at.model.vocab_size)
    temperatures = torch.full((rows,), 0.6, device=at.device)
    keys = torch.tensor([request_key(SEED, None, row) for row in range(rows)], device=at.device)
    draws = torch.arange(rows, device=at.device)
    runs: dict[str, Run] = {
        "triton": lambda: sample(logits, temperatures, keys, draws),
        "torch": lambda: race(logits, temperatures, keys, draws),
    }
    yield Case("sample", rows, bytes_of(logits), runs, exact=True)
    cold = torch.zeros_like(temperatures)
    runs = {"triton": lambda: sample(logits, cold, keys, draws), "torch": lambda: logits.argmax(dim=-1)}
    yield Case("sample greedy", rows, bytes_of(logits), runs, exact=True)


# ---- attention ----------------------------------------------------------------------------


def paged_step(at: Setting, queries: list[int], contexts: list[int]) -> tuple[AttentionBatch, LayerCache, Tensor]:
    """A step of rows with so many queries and context tokens, whose blocks lie in random order; its cache; and the
    slots [rows, longest context] of all contexts, padded with those of block 0."""
    counts = [-(-length // at.block_size) for length in contexts]
    order = torch.randperm(sum(counts), dtype=torch.int32)
    tables = pad_sequence(list(torch.split_with_sizes(order, counts)), batch_first=True).to(at.device)
    starts, lengths = at.ints([0, *accumulate(queries)]), at.ints(contexts)
    batch = AttentionBatch(queries, contexts, starts, lengths, tables, at.block_size)
    in_block = torch.arange(at.block_size, device=at.device)
    slots = (tables.long()[:, :, None] * at.block_size + in_block).flatten(1)[:, : max(contexts)]
    return batch, at.cache(sum(counts)), slots


def by_backends(
    at: Setting, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache, batch: AttentionBatch
) -> dict[str, Run]:
    """Attention by our kernels and, where it is installed, by flash-attn; the arguments are those of `attend`."""

    def way(name: str) -> Run:
        backend = load(name)
        metadata = backend.prepare(batch, at.dtype)
        return lambda: backend.attend(query, key, value, cache, metadata)

    names = ("triton", "flash_attn")
    return {name: way(name) for name in names if not obstacle(name, torch.device(at.device), at.dtype, at.block_size)}


def attention_bytes(query: Tensor, cache: LayerCache, contexts: list[int]) -> int:
    return bytes_of(query, query) + sum(contexts) * bytes_of(cache.key[0], cache.value[0])


def decode_case(at: Setting, name: str, contexts: list[int]) -> Case:
    rows, heads = len(contexts), at.model.num_attention_heads
    batch, cache, slots = paged_step(at, [1] * rows, contexts)
    query = at.normal(rows, heads, at.model.head_dim)
    is_seen = torch.arange(max(contexts), device=at.device) < batch.context_lengths[:, None]
    mask = None if min(contexts) == max(contexts) else is_seen[:, None, None, :]

    def in_torch() -> Tensor:
        """The query heads of a kv head stand where queries are expected, so that keys are read once for them."""
        key, value = cache.key[slots].transpose(1, 2), cache.value[slots].transpose(1, 2)
        grouped = query.view(rows, key.shape[1], -1, query.shape[2])
        return F.scaled_dot_product_attention(grouped, key, value, attn_mask=mask).reshape(query.shape)

    last = slots.gather(1, batch.context_lengths[:, None].long() - 1).squeeze(1)
    runs = by_backends(at, query, cache.key[last], cache.value[last], cache, batch) | {"torch": in_torch}
    return Case(name, rows, attention_bytes(query, cache, contexts), runs)


def prefill_case(at: Setting, rows: int, context: int) -> Case:
    contexts = [context] * rows
    batch, cache, slots = paged_step(at, contexts, contexts)
    query = at.normal(rows * context, at.model.num_attention_heads, at.model.head_dim)
    key, value = cache.key[slots].flatten(0, 1), cache.value[slots].flatten(0, 1)

    def in_torch() -> Tensor:
        q, k, v = (part.view(rows, context, -1, part.shape[2]).transpose(1, 2) for part in (query, key, value))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(0, 1)

    runs = by_backends(at, query, key, value, cache, batch) | {"torch": in_torch}
    return Case("paged_prefill", rows, attention_bytes(query, cache, contexts), runs)


# ---- all of them --------------------------------------------------------------------------


def cases(at: Setting, row_counts: list[int], context: int, ragged: list[int]) -> Iterator[Case]:
    """One at a time: the largest hold gigabytes, which are gone before the next is made."""
    low, high = ragged
    for rows in row_counts:
        yield from norm_cases(at, rows)
        yield activation_case(at, rows)
        yield rotary_case(at, rows, context)
        yield from linear_cases(at, rows)
        yield from sampling_cases(at, rows)
        yield decode_case(at, "paged_decode", [context] * rows)
        drawn = random.Random(SEED).choices(range(low, high + 1), k=rows)
        yield decode_case(at, "paged_decode ragged", sorted(drawn, reverse=True))
        if rows <= MOST_PROMPTS:
            yield prefill_case(at, rows, context)


def check(case: Case) -> None:
    """Raises RuntimeError where a way's output is not the first one's."""
    outputs = {name: outputs_of(run) for name, run in case.runs.items()}
    allowed = MOST_OTHERS if case.exact else TOLERANCE
    for name, others in outputs.items():
        for ours, other in zip(outputs["triton"], others, strict=True):
            wrong = share_of_others(ours, other) if case.exact else relative_difference(ours, other)
            if not wrong <= allowed:  # nor if it is nan
                raise RuntimeError(f"{case.name}, {case.rows} rows: triton and {name} differ by {wrong:.3g}")


def outputs_of(run: Run) -> tuple[Tensor, ...]:
    result = run()
    return result if isinstance(result, tuple) else (result,)


def share_of_others(ours: Tensor, other: Tensor) -> float:
    return (ours != other).double().mean().item()


def relative_difference(ours: Tensor, other: Tensor) -> float:
    return float(torch.linalg.vector_norm(ours.double() - other.double()) / torch.linalg.vector_norm(other.double()))


def measure(case: Case, device: str, budget_ms: int) -> dict[str, Any]:
    """Median microseconds of each way, with the bandwidth of ours and its ratio to PyTorch."""
    times = {name: microseconds(run, device, budget_ms) for name, run in case.runs.items()}
    return {
        "kernel": case.name,
        "rows": case.rows,
        "bytes": case.bytes,
        "microseconds": {name: round(value, 2) for name, value in times.items()},
        "terabytes_per_second": round(case.bytes / times["triton"] / 1e6, 3),
        "speedup_over_torch": round(times["torch"] / times["triton"], 2),
    }


def microseconds(run: Run, device: str, budget_ms: int) -> float:
    """The median of as many runs as fit into the budget; of one run on a CPU, where it means nothing."""
    if device == "cpu":
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e6
    from triton.testing import do_bench

    return float(do_bench(run, warmup=budget_ms // 4, rep=budget_ms, return_mode="median")) * 1000


def show(result: dict[str, Any]) -> None:
    times = "  ".join(f"{name} {value:9.1f} us" for name, value in result["microseconds"].items())
    print(
        f"{result['kernel']:<22} {result['rows']:>4} rows  {result['bytes'] / 1e6:9.2f} MB "
        f"{result['terabytes_per_second']:6.3f} TB/s  x{result['speedup_over_torch']:<7.2f} {times}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32, 256], help="batch sizes (default: %(default)s)")
    parser.add_argument("--context", type=int, default=1024, help="tokens of each row (default: %(default)s)")
    parser.add_argument(
        "--ragged",
        type=int,
        nargs=2,
        default=[100, 1500],
        metavar=("LOW", "HIGH"),
        help="contexts of the ragged decode, drawn from the seed (default: %(default)s)",
    )
    parser.add_argument("--budget-ms", type=int, default=100, help="time of each measurement (default: %(default)s)")
    parser.add_argument(
        "--device",
        choices=["cuda", "cpu"],
        default="cuda",
        help="cpu only to try the script out: a small model's shapes in Triton's interpreter (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, help="write the results there as JSON, with machine, versions and seed")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        triton_interpreter()
        at, name = Setting(load_config(resolve_model("tiny")), "cpu", torch.float32, 16), "Triton's interpreter"
    elif torch.cuda.is_available():
        at = Setting(load_config(SHAPES / "qwen3-0.6b"), "cuda", torch.bfloat16, 256)
        name = torch.cuda.get_device_name()
    else:
        print("needs an NVIDIA GPU and a PyTorch with CUDA; torch.cuda.is_available() is False", file=sys.stderr)
        return 1
    torch.manual_seed(SEED)
    print(f"{name}, torch {torch.__version__}; TB/s and speedup are of the Triton kernel")
    results = []
    for case in cases(at, arguments.rows, arguments.context, arguments.ragged):
        check(case)
        results.append(measure(case, at.device, arguments.budget_ms))
        show(results[-1])
    if arguments.out:
        document = {"benchmark": "kernels", "seed": SEED, "machine": machine(), "gpu": name}
        document |= {"context": arguments.context, "ragged": arguments.ragged, "results": results}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")
        print(f"evidence: {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
