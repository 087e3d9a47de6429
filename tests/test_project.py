"""The project's own files agree with each other."""

import re
import tomllib
from pathlib import Path

import yaml

from nanoinfer import extras

ROOT = Path(__file__).parent.parent
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIGURATION["project"]
EXTRAS = PROJECT["optional-dependencies"]
README = (ROOT / "README.md").read_text()


def test_environment_file_is_the_base_and_all_extras_but_gpu_and_browser():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(entry["pip"] for entry in environment if isinstance(entry, dict))
    packages = [*PROJECT["dependencies"]]
    for extra in ("engine", "plots", "notebooks", "tests", "docs"):
        packages += [package for package in EXTRAS[extra] if not package.startswith("nanoinfer[")]
    assert pip == [*dict.fromkeys(packages), "-e ."]
    python = next(entry for entry in environment if str(entry).startswith("python"))
    assert PROJECT["requires-python"] in python


def test_the_base_is_xxhash():
    assert [name_of(package) for package in PROJECT["dependencies"]] == ["xxhash"]


def test_all_is_every_extra_but_gpu():
    [package] = EXTRAS["all"]
    assert re.fullmatch(r"nanoinfer\[(.+)]", package)[1].split(",") == [e for e in EXTRAS if e not in ("gpu", "all")]
    holders = [extra for extra, packages in EXTRAS.items() if any(p.startswith("flash-attn") for p in packages)]
    assert holders == ["gpu"]


def test_a_package_has_the_same_range_in_every_extra():
    ranges = {}
    for package in sum(EXTRAS.values(), PROJECT["dependencies"]):
        if not package.startswith("nanoinfer["):
            assert ranges.setdefault(name_of(package), package) == package


def name_of(package: str) -> str:
    """As it is imported, which for these packages is as it is installed, with another hyphen."""
    return re.match(r"[\w-]+", package)[0].replace("-", "_")


def test_messages_name_the_extra_that_brings_the_package():
    brought = {extra: {name_of(package) for package in packages} for extra, packages in EXTRAS.items()}
    brought["notebooks"].add("IPython")  # comes with ipywidgets
    assert extras.EXTRAS.keys() <= EXTRAS.keys()
    for extra, packages in extras.EXTRAS.items():
        assert set(packages) <= brought[extra]
        assert extras.how_to_install(packages[0]).endswith(f' -m pip install "nanoinfer[{extra}]"')


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


def test_a_test_for_every_policy_takes_them_from_the_package():
    """So a new policy is tested wherever it should be: `kit.helpers.POLICIES`."""
    spelt_out = re.compile(r"""parametrize\("policy", [\[(]""")
    assert [path for path in (ROOT / "tests").rglob("*.py") if spelt_out.search(path.read_text(encoding="utf-8"))] == []


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
