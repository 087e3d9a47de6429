"""What the benchmarks share: where the evidence goes and what it says about the machine and a checkout."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

EVIDENCE = Path(__file__).parent / "evidence"


def save_evidence(name: str, results: dict[str, Any], seed: int) -> Path:
    """Write `results` with the machine, the versions and the seed beside them; returns the path."""
    path = EVIDENCE / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    document = {"benchmark": name, "seed": seed, "machine": machine(), **results}
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def machine() -> dict[str, Any]:
    """Processor, cores and the versions that matter."""
    versions = {"python": platform.python_version()}
    for package in ("nanoinfer", "torch", "triton", "flash-attn", "transformers", "xxhash"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"processor": _processor(), "cores": os.cpu_count(), "versions": versions}


def commit_of(tree: Path) -> str | None:
    """The commit that is checked out, if there is one."""
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
