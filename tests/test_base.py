"""The base of the package, with xxhash alone beside it; `.ci/run` does the same with an installed wheel."""

import os
import subprocess
import sys
from pathlib import Path

import base_alone
import pytest
import xxhash

import nanoinfer
from nanoinfer import compare


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The folder that `base_alone` wrote to, in a Python that finds xxhash and nanoinfer and no other package."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("pages")
    for package in (nanoinfer, xxhash):
        (site / package.__name__).symlink_to(Path(package.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-P", "-S", base_alone.__file__, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_pages_are_the_same_with_the_base_alone_as_with_everything(pages, tmp_path):
    a, b = base_alone.runs()
    a.to_html(tmp_path / "one.html")
    compare(a, b).to_html(tmp_path / "both.html")
    for name in ("one.html", "both.html"):
        assert (pages / name).read_bytes() == (tmp_path / name).read_bytes()
