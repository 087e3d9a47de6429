"""The project's own files agree with each other."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIGURATION["project"]
README = (ROOT / "README.md").read_text()


def test_environment_file_is_base_plus_notebooks_plus_tests_plus_docs():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(entry["pip"] for entry in environment if isinstance(entry, dict))
    extras = PROJECT["optional-dependencies"]
    assert pip == [*PROJECT["dependencies"], *extras["notebooks"], *extras["tests"], *extras["docs"], "-e ."]
    python = next(entry for entry in environment if str(entry).startswith("python"))
    assert PROJECT["requires-python"] in python


def test_flash_attn_is_only_in_the_gpu_extra():
    extras = PROJECT["optional-dependencies"]
    holders = [name for name, packages in extras.items() if any(p.startswith("flash-attn") for p in packages)]
    assert holders == ["gpu"]
    assert any(p.startswith("torch") for p in PROJECT["dependencies"])


def test_readme_is_short_and_its_tree_exists():
    assert len(README.splitlines()) <= 150
    tree = README.split("```\nnanoinfer/")[1].split("```")[0]
    names = re.findall(r"[a-z_]+\.(?:py|md)", tree)
    assert len(names) > 20
    present = {path.name for path in (ROOT / "nanoinfer").rglob("*.py")}
    assert set(names) <= present


def test_ci_runs_the_commands_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text()
    block = README.split("```bash\n")[1].split("```")[0]
    for command in re.findall(r"\.venv/bin/(.+?)(?: &&|\n)", block):
        assert command in script


def test_ci_runs_the_tests_that_the_default_run_leaves_out():
    """But for those that need a GPU."""
    left_out = re.findall(r"not (\w+)", CONFIGURATION["tool"]["pytest"]["ini_options"]["addopts"])
    assert "gpu" in left_out
    for marker in set(left_out) - {"gpu"}:
        assert f"pytest -m {marker}" in (ROOT / ".ci" / "run").read_text()


def test_ci_builds_the_site_as_the_readme_says():
    block = README.split("```bash\n")[-1].split("```")[0]
    install, build = re.findall(r"\.venv/bin/(.+?)(?: &&|\n)", block)
    script = (ROOT / ".ci" / "run").read_text()
    assert "sphinx-build -W" in build
    assert install in script
    assert build.removesuffix("docs/_build/site") in script
    assert "docs/_build/" in (ROOT / ".gitignore").read_text()


def test_every_reason_is_in_the_catalogue_page():
    from nanoinfer.reasons import FinishReason, MissReason, RefusalReason, StopReason

    page = (ROOT / "docs" / "why.md").read_text()
    for reason in (*StopReason, *FinishReason, *MissReason, *RefusalReason):
        assert f"`{reason}`" in page


def test_every_event_kind_is_in_the_format_page():
    from nanoinfer.trace.events import KINDS

    page = (ROOT / "docs" / "trace-format.md").read_text()
    for kind in KINDS:
        assert f"| `{kind}` |" in page


def test_every_metric_is_defined():
    from nanoinfer import SamplingParams, simulate

    page = (ROOT / "docs" / "metrics.md").read_text()
    figures = set(simulate([[1, 2]], SamplingParams(max_tokens=2)).metrics())
    plain_counts = {"clock_unit", "num_requests", "num_steps", "prompt_tokens", "output_tokens", "requests"}
    for name in figures - plain_counts:
        assert f"| `{name}` |" in page
