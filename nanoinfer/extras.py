"""Packages that only parts of nanoinfer need: the extra that brings each, and what to say where it is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

EXTRAS = {
    "engine": ("torch", "transformers", "safetensors", "huggingface_hub"),
    "plots": ("matplotlib", "pandas"),
    "notebooks": ("jupyterlab", "anywidget", "IPython"),
    "tests": ("pytest",),
}


class MissingExtra(ModuleNotFoundError):
    """A package is not installed, and the message says which extra brings it."""


def missing(*packages: str) -> str | None:
    """The first of `packages` that is not installed."""
    return next((package for package in packages if find_spec(package) is None), None)


def how_to_install(package: str) -> str:
    """The command that installs the extra of `package`; with this Python's own pip, since another would not help."""
    extra = next(extra for extra, packages in EXTRAS.items() if package in packages)
    return f'{sys.executable} -m pip install "nanoinfer[{extra}]"'


def require(what: str, *packages: str) -> None:
    """Check that all `packages`, which `what` uses, are installed.

    Raises:
        MissingExtra: one is not.
    """
    package = missing(*packages)
    if package:
        raise MissingExtra(f"{what} needs {package}, which comes with: {how_to_install(package)}", name=package)
