"""What the pages and notebooks say of the project exists: links, anchors, names of the code, the picture, examples."""

import ast
import json
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

import nanoinfer
from nanoinfer import SamplingParams, simulate
from nanoinfer.core.policies import POLICIES
from nanoinfer.reasons import REASONS
from nanoinfer.trace.events import SCHEMA_VERSION

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "nanoinfer"
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("notebooks/*.ipynb")]
    if not {"_build", ".ipynb_checkpoints"} & {*page.parts} and not page.name.startswith(".")
)
PARTS = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
SVG = "{http://www.w3.org/2000/svg}"


@cache
def text_of(page):
    """The Markdown of a page, or of a notebook's text cells."""
    if page.suffix == ".md":
        return page.read_text(encoding="utf-8")
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def without_code(text):
    """Fenced blocks and code spans may hold anything that looks like a link or a heading."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^( *)(```+)[^\n]*\n.*?^\1\2", "", text, flags=re.S | re.M))


@cache
def anchors_of(page):
    """The names GitHub gives to headings (and Sphinx, here): lower case, no punctuation, dashes for spaces."""
    anchors = set(re.findall(r'(?:id|name)="([^"]+)"', text_of(page)))
    fenceless = re.sub(r"^( *)(```+)[^\n]*\n.*?^\1\2", "", text_of(page), flags=re.S | re.M)
    for heading in re.findall(r"^#{1,6} +(.+?)\s*$", fenceless, flags=re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        repeats = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", known) is not None for known in anchors)
        anchors.add(f"{slug}-{repeats}" if repeats else slug)
    return anchors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(page):
    text = without_code(text_of(page))
    for link in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:href|src)="([^"]+)"', text):
        if re.match(r"(https?|mailto|data):", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors_of(target), f"{link}: no such heading; there are {sorted(anchors_of(target))}"


def names_in(path):
    """Dotted names of the classes, functions, methods and constants of a file."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_the_code_exist(page):
    """`file.py::name` of the package, and every path in code type that begins with a folder."""
    for path, name in re.findall(r"`([\w/]+\.py)::([\w.]+)`", text_of(page)):
        if path != "file.py":  # the pages explain their notation with it
            assert name in names_in(PACKAGE / path), f"{path} has no {name}"
    for path in re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|js|svg|json|ipynb))`", text_of(page)):
        homes = (ROOT, PACKAGE, page.parent)
        assert "/my_" in path or any((home / path).exists() for home in homes), f"{path} does not exist"


def test_the_pages_that_walk_through_the_code_name_it():
    """Otherwise the test above would check nothing."""
    for page in ("architecture.md", "gpu.md"):
        assert len(re.findall(r"`[\w/]+\.py::[\w.]+`", text_of(ROOT / "docs" / page))) > 30


# ---- the picture of the architecture ------------------------------------------------------


@cache
def picture():
    """Ids in the picture: its boxes' parts, and its arrows as pairs."""
    tree = ET.parse(ROOT / "docs" / "images" / "architecture.svg")
    boxes = {group.get("id").removeprefix("part-") for group in tree.iter(f"{SVG}g")}
    arrows = {tuple(path.get("id").split("-imports-")) for path in tree.iter(f"{SVG}path")}
    return boxes, arrows


def test_the_picture_shows_every_part_of_the_package():
    boxes, _ = picture()
    assert boxes == PARTS - {"__init__", "__main__"}


def test_a_box_is_labelled_as_what_it_is():
    for group in ET.parse(ROOT / "docs" / "images" / "architecture.svg").iter(f"{SVG}g"):
        label = group.find(f"{SVG}text").text
        assert (PACKAGE / label).exists()
        assert label.removesuffix("/").removesuffix(".py") == group.get("id").removeprefix("part-")


def imported_by(part):
    """Parts of the package that some file of `part` imports, wherever the statement stands."""
    files = (PACKAGE / part).rglob("*.py") if (PACKAGE / part).is_dir() else [PACKAGE / f"{part}.py"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    found = set(re.findall(r"^\s*from nanoinfer\.(\w+)", text, flags=re.M))
    for names in re.findall(r"^\s*from nanoinfer import (.+)$", text, flags=re.M):
        found |= {nanoinfer._HOME[name].split(".")[1] for name in re.findall(r"\w+", names) if name in nanoinfer._HOME}
    return found


def test_arrows_of_the_picture_are_imports():
    _, arrows = picture()
    assert len(arrows) > 10
    for importer, imported in arrows:
        assert imported in imported_by(importer), f"{importer} does not import {imported}"


# ---- examples and lists -------------------------------------------------------------------


@pytest.mark.parametrize("page", ["faq.md", "extending.md", "index.md"])
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    """All blocks of a page, one after the other in one namespace; an assertion in them is a statement of the page."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", text_of(ROOT / "docs" / page), flags=re.S | re.M)
    assert blocks
    namespace = {}
    with patch.dict(POLICIES), patch.dict(REASONS):
        for block in blocks:
            exec(compile(block, page, "exec"), namespace)
        if page == "extending.md":
            static, default = namespace["static"], namespace["default"]
            assert len(static.steps) > len(default.steps)
            assert "The batch of 1 sequence is not done, so sequence 2 must wait." in static.explain(3)
            static.state(len(static.steps) - 1)
            assert (tmp_path / "waiting.png").stat().st_size > 5_000


def test_every_answer_leads_on():
    """Each question has an answer with a link to more."""
    sections = re.split(r"^### ", text_of(ROOT / "docs" / "faq.md"), flags=re.M)[1:]
    assert len(sections) > 20
    for section in sections:
        question, _, answer = section.partition("\n")
        assert question.rstrip().endswith("?"), question
        assert re.search(r"\]\((?!http)", answer), f"no link under: {question}"


def test_public_names_are_in_the_reference():
    page = text_of(ROOT / "docs" / "api.md")
    for name in set(nanoinfer.__all__) - {"LLM"}:
        assert re.search(rf":: nanoinfer\.(?:\w+\.)*{name}$", page, flags=re.M), f"{name} has no entry"
    for cls in POLICIES.values():
        assert re.search(rf":: nanoinfer\.(?:\w+\.)*{cls.__name__}$", page, flags=re.M), f"{cls} has no entry"


def test_symbols_are_defined_before_a_metric_uses_them():
    symbols, figures = text_of(ROOT / "docs" / "metrics.md").split("## Figures")
    defined = set(re.findall(r"\*([A-Za-z])\*", symbols))
    formulas = re.findall(r"^\| `\w+` \| (.*) \|$", figures, flags=re.M)
    assert len(formulas) > 8
    not_symbols = {"k", "i", "A", "a"}  # "for all k", "one value per step", and the article
    used = {s for formula in formulas for s in re.findall(r"(?<![\w`'])([A-Za-z])(?![\w`'])", formula)}
    assert {"N", "B", "L", "H", "t", "u", "f"} <= used
    assert used - not_symbols <= defined


def test_every_field_of_a_trace_file_is_in_the_format_page(tmp_path):
    page = text_of(ROOT / "docs" / "trace-format.md")
    named = set(re.findall(r"`(\w+)`", page)) | {"type", "requests", "steps"}  # the first column, and what `end` counts
    assert f"| {SCHEMA_VERSION} |" in page
    pressed = {"kvcache_block_size": 4, "num_kvcache_blocks": 5, "overlap": True}
    simulate([[1] * 8, [2] * 8], SamplingParams(max_tokens=5), **pressed).save(tmp_path / "run.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert any("preempted" in line for line in lines)
    for line in lines:
        inner = [line.get(part) for part in ("rows", "timing") if isinstance(line.get(part), dict)]
        assert set().union(line, *inner) <= named
