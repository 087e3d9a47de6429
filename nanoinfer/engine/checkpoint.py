"""From a model's name to a directory that holds it: the shipped model, a local directory, or a hub id.

Nothing is read here; `models/config.py` and `models/loader.py` do that. The network is touched for hub ids only.
"""

from __future__ import annotations

import re
from pathlib import Path

TINY = "tiny"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
WANTED_FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja"]  # config, weights, tokenizer, chat template


def resolve_model(name: str) -> Path:
    """The directory of a model.

    Args:
        name: "tiny" (ships with the package), a local directory, or a hub id such as "Qwen/Qwen3-0.6B".

    Raises:
        ValueError: neither a directory nor shaped like a hub id.
        RuntimeError: a hub id that could not be fetched.
    """
    if name == TINY:
        return Path(__file__).parent.parent / "models" / TINY
    directory = Path(name).expanduser()
    if name and directory.is_dir():  # an empty path is the current directory
        return directory
    if not HUB_ID.fullmatch(name):
        raise ValueError(
            f"no model {name!r}: there is no such directory, and it is not a hub id (owner/name). "
            f"Check the path, or use {TINY!r}, the model that ships with nanoinfer"
        )
    return download(name)


def download(hub_id: str) -> Path:
    """Fetch a model from the Hugging Face hub, or find it in the local cache when offline.

    Raises:
        RuntimeError: no network and not cached, or no such repository; says what was tried and what to do.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=WANTED_FILES))
    except Exception as error:  # the hub client raises many unrelated types; all of them mean the same here
        raise RuntimeError(
            f"cannot get model {hub_id!r}: no such directory here, and the hub and its local cache gave "
            f"{type(error).__name__}: {error}\nCheck the name, or download the model elsewhere and pass its "
            f"directory, or use {TINY!r}, the model that ships with nanoinfer"
        ) from error
