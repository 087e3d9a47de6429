"""The scripts of `docs/` are no package: they are loaded from their files and run as from a command line."""

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Loads docs/NAME.py afresh, as Python would as a script; a benchmark's evidence goes to tmp_path."""

    def load(name):
        path = DOCS / f"{name}.py"
        monkeypatch.syspath_prepend(path.parent)
        spec = spec_from_file_location(path.stem, path)
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)
        if path.parent.name == "benchmarks":
            monkeypatch.setattr(importlib.import_module("common"), "EVIDENCE", tmp_path)
        return module

    return load


@pytest.fixture
def run(monkeypatch):
    """Runs the `main` of a loaded script with these arguments."""

    def run(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module.__file__, *map(str, arguments)])
        return module.main()

    return run
