"""Rewrite a trained folder into the layout of the published Qwen3 repositories.

transformers 5 saves `rope_parameters`, `dtype` and a chat_template.jinja; the published repositories
have top-level `rope_theta`, `torch_dtype` and the template inside tokenizer_config.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

FORMAT_VERSION = "4.51.0"  # the transformers version that wrote the published repositories
MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def published_config(saved: dict[str, Any]) -> dict[str, Any]:
    """config.json under the published names, in their order."""
    rope = saved.get("rope_parameters") or {}
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": saved["eos_token_id"],
        "head_dim": saved["head_dim"],
        "hidden_act": "silu",
        "hidden_size": saved["hidden_size"],
        "initializer_range": 0.02,
        "intermediate_size": saved["intermediate_size"],
        "max_position_embeddings": saved["max_position_embeddings"],
        "max_window_layers": saved["num_hidden_layers"],
        "model_type": "qwen3",
        "num_attention_heads": saved["num_attention_heads"],
        "num_hidden_layers": saved["num_hidden_layers"],
        "num_key_value_heads": saved["num_key_value_heads"],
        "rms_norm_eps": saved["rms_norm_eps"],
        "rope_scaling": None,
        "rope_theta": rope["rope_theta"] if "rope_theta" in rope else saved["rope_theta"],
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": FORMAT_VERSION,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": saved["vocab_size"],
    }


def published_generation_config(saved: dict[str, Any]) -> dict[str, Any]:
    """generation_config.json with default sampling values for chats."""
    return {
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "eos_token_id": saved["eos_token_id"],
        "pad_token_id": saved["pad_token_id"],
        "transformers_version": FORMAT_VERSION,
    }


def rewrite_json(source: Path, target: Path, name: str, convert: Any) -> None:
    """Read a JSON file of one folder, convert it and write it to the other."""
    saved = json.loads((source / name).read_text(encoding="utf-8"))
    (target / name).write_text(json.dumps(convert(saved), indent=2), encoding="utf-8")


def publish(model: Path, tokenizer: Path, output: Path) -> None:
    """Write the five files of a repository."""
    output.mkdir(parents=True, exist_ok=True)
    rewrite_json(model, output, "config.json", published_config)
    rewrite_json(model, output, "generation_config.json", published_generation_config)
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, output / name)
    weights = output / "model.safetensors"
    shutil.copyfile(model / "model.safetensors", weights)
    weights.chmod(0o644)  # save_pretrained() lets only its user read the weights


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder written by train.py")
    parser.add_argument("tokenizer", type=Path, help="folder written by make_tokenizer.py")
    parser.add_argument("output", type=Path, help="folder to write")
    arguments = parser.parse_args()
    needed = [arguments.model / name for name in MODEL_FILES]
    needed += [arguments.tokenizer / name for name in TOKENIZER_FILES]
    if missing := [str(path) for path in needed if not path.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    return arguments


def main() -> None:
    """Write the folder and list it."""
    arguments = parse_arguments()
    publish(arguments.model, arguments.tokenizer, arguments.output)
    for name in MODEL_FILES + TOKENIZER_FILES:
        print(f"{(arguments.output / name).stat().st_size:>10} {arguments.output / name}")


if __name__ == "__main__":
    main()
