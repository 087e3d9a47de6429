"""Fill a model's parameters: from safetensors files, or with random numbers for benchmarks.

Tensors stream one at a time from the file into the parameter, which already has its final dtype and device, so the
peak is the model plus one tensor. Every parameter must be filled and every tensor must be wanted.

This file does not build models and does not download anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from nanoinfer.models.config import read_json
from nanoinfer.models.layers import Parameter
from nanoinfer.models.parallel import Ranks
from nanoinfer.models.qwen3 import Qwen3ForCausalLM

SINGLE_FILE = "model.safetensors"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
INDEX_FILE = "model.safetensors.index.json"
DUMMY_STD = 0.02  # the initializer_range of the Qwen3 configs


def load_weights(model: Qwen3ForCausalLM, model_dir: Path) -> None:
    """Copy a checkpoint into `model`, casting to each parameter's dtype.

    Raises:
        ValueError: no checkpoint, a missing or damaged file, a wrong shape, an unexpected tensor, or a parameter
            left unfilled; names the file, the parameter and the shapes.
    """
    parameters = dict(named_parameters(model))
    unfilled = set(parameters)
    ends: dict[str, Tensor] = {}  # of a tied checkpoint: some store the head too, and then it must be the embedding
    for file in checkpoint_files(model_dir):
        for name, tensor in read_tensors(file):
            if model.config.tie_word_embeddings and name in (HEAD, EMBEDDING):
                ends[name] = tensor
            if name in parameters or name not in ends:
                copy_into(parameters, name, tensor, file, model.ranks)
            unfilled.discard(name)
    if HEAD in ends and not torch.equal(ends[HEAD], ends.get(EMBEDDING, ends[HEAD])):
        raise ValueError(
            f"{HEAD} in {model_dir} is not {EMBEDDING}, but config.json has tie_word_embeddings=true, which leaves it "
            "unused; set that to false to use both"
        )
    if unfilled:
        raise ValueError(f"{model_dir} has no tensor for {sorted(unfilled)}; is the checkpoint complete?")


def checkpoint_files(model_dir: Path) -> list[Path]:
    """The one safetensors file, or the shards that the index names. Raises ValueError for absent ones."""
    if (model_dir / SINGLE_FILE).exists():
        return [model_dir / SINGLE_FILE]
    if not (model_dir / INDEX_FILE).exists():
        raise ValueError(
            f"no {SINGLE_FILE} and no {INDEX_FILE} in {model_dir}; download the weights, or use load_format='dummy'"
        )
    weight_map = read_json(model_dir / INDEX_FILE).get("weight_map", {})
    files = [model_dir / shard for shard in sorted(set(weight_map.values()))]
    absent = [file.name for file in files if not file.exists()]
    if absent:
        raise ValueError(f"{INDEX_FILE} names shards that are not in {model_dir}: {absent}; download them again")
    return files


def read_tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of one file, one at a time. Raises ValueError when the file is damaged."""
    try:
        with safe_open(file, framework="pt", device="cpu") as shard:
            for name in shard.keys():  # noqa: SIM118 (not a dict: it cannot be iterated)
                yield name, shard.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"cannot read {file}: {error}; the file is damaged, download it again") from None


def named_parameters(model: nn.Module) -> Iterator[tuple[str, Parameter]]:
    """The model's parameters by name; a tied head shows once, as the embedding."""
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, Parameter), name
        yield name, parameter


def copy_into(parameters: dict[str, Parameter], name: str, tensor: Tensor, file: Path, ranks: Ranks) -> None:
    """Fill one parameter in place with this rank's part. Raises ValueError for an unknown name or a wrong shape."""
    if name not in parameters:
        raise ValueError(
            f"{file} holds an unexpected tensor {name} {list(tensor.shape)}; does config.json belong to it?"
        )
    parameter = parameters[name]
    expected = whole_shape(parameter, ranks)
    if list(tensor.shape) != expected:
        raise ValueError(f"{name} has shape {list(tensor.shape)} in {file}, but config.json asks for {expected}")
    parameter.copy_(own_part(tensor, parameter, ranks))


def whole_shape(parameter: Parameter, ranks: Ranks) -> list[int]:
    """Shape of the parameter before it was cut over the ranks."""
    return [n * ranks.size if dim == parameter.shard_dim else n for dim, n in enumerate(parameter.shape)]


def own_part(whole: Tensor, parameter: Parameter, ranks: Ranks) -> Tensor:
    """This rank's part of a whole parameter; a view."""
    return whole if parameter.shard_dim is None else whole.chunk(ranks.size, parameter.shard_dim)[ranks.rank]


def fill_random(model: Qwen3ForCausalLM, seed: int) -> None:
    """Random weights, the same for the same seed and device, however many ranks share them: norms are one, all else
    is normal."""
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    for name, parameter in named_parameters(model):
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
        elif model.ranks.size == 1:
            parameter.normal_(0.0, DUMMY_STD, generator=generator)
        else:
            whole = parameter.new_empty(whole_shape(parameter, model.ranks)).normal_(
                0.0, DUMMY_STD, generator=generator
            )
            parameter.copy_(own_part(whole, parameter, model.ranks))
