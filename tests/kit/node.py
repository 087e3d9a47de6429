"""The explorer's modules run by Node, without a browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from nanoinfer.explore.page import constants

TESTS = Path(__file__).parents[1] / "web"


def run_node(test: str, cases: Any = None) -> None:
    """Run a file of tests/web with `node --test`; skips the test where there is no Node.

    Args:
        test: the name of the file.
        cases: what it reads as `cases`, from web.mjs.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node 20 or newer")
    with TemporaryDirectory() as folder:
        shutil.copytree(str(files("nanoinfer.explore").joinpath("web")), folder, dirs_exist_ok=True)
        Path(folder, "constants.js").write_text(constants(), encoding="utf-8")
        Path(folder, "package.json").write_text('{"type": "module"}', encoding="utf-8")
        Path(folder, "cases.json").write_text(json.dumps(cases), encoding="utf-8")
        command = [node, "--test", "--test-reporter=spec", str(TESTS / test)]
        environment = os.environ | {"NANOINFER_WEB": folder}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
