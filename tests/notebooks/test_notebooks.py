"""Every notebook runs from top to bottom, and what is committed reads well without a kernel."""

import ast
import json
import re
from pathlib import Path

import nbformat
import pytest
from kit.helpers import one_in
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LESSONS = [path for path in NOTEBOOKS if not path.stem.startswith("00")]
WIDGET = "application/vnd.jupyter.widget-view+json"
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def names(path):
    return path.stem


every = pytest.mark.parametrize("path", NOTEBOOKS, ids=names)
lesson = pytest.mark.parametrize("path", LESSONS, ids=names)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs_of(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def prose(notebook):
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def calls(notebook):
    """Names of all functions and methods that the code cells call, one entry a call."""
    nodes = [node for cell in code_cells(notebook) for node in ast.walk(ast.parse(cell.source))]
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    return [getattr(function, "attr", getattr(function, "id", None)) for function in functions]


@pytest.mark.parametrize("path", one_in(5, NOTEBOOKS), ids=names)
def test_runs_from_top_to_bottom(path, tmp_path):
    """A cell that raises, an assertion among them, fails the test with the cell and its traceback."""
    notebook = read(path)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where, store_widget_state=False).execute()
    assert all(cell.execution_count for cell in code_cells(notebook))
    assert [output.text for output in outputs_of(notebook) if output.get("name") == "stderr"] == []


@every
def test_cells_are_short_and_define_no_classes_but_policies(path):
    policies = {"Scheduler"}
    for cell in code_cells(read(path)):
        assert len(cell.source.splitlines()) <= 12, cell.source
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.ClassDef):
                assert policies & {ast.unparse(base) for base in node.bases}, cell.source
                policies.add(node.name)
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 6, cell.source


@every
def test_committed_outputs_need_no_kernel(path):
    """B94: widget output shows nothing on a site without a kernel, so none is committed."""
    notebook = read(path)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    assert outputs_of(notebook), "commit the notebook with its outputs"
    for output in outputs_of(notebook):
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.text
        assert WIDGET not in output.get("data", {})


@every
def test_committed_outputs_belong_to_one_run_and_stay_small(path):
    notebook = read(path)
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    assert len(json.dumps(outputs_of(notebook))) < 2_500_000
    for output in outputs_of(notebook):
        text = output.get("text", "")
        assert len(text.splitlines()) <= 40, text
        assert "Warning" not in text, text
        assert not re.search(r"\d+%\|", text), text  # a progress bar


@every
def test_opens_with_a_question_a_time_and_what_to_know(path):
    first = read(path).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    for part in ("**The question.**", "**Time:**", "**You need"):
        assert part in first.source


@every
def test_closes_with_what_the_reader_can_do_now(path):
    notebook = read(path)
    last = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"][-1]
    _, heading, tail = last.partition("## Can you now")
    assert heading, last
    assert 3 <= len(re.findall(r"^[*-] .*\?$", tail, re.MULTILINE)) <= 5, tail
    targets = LINK.findall(tail)
    assert any(target.startswith("../docs/") for target in targets)
    later = [other.name for other in NOTEBOOKS if other.name > path.name]
    assert not later or later[0] in targets


@every
def test_links_lead_somewhere(path):
    for target in LINK.findall(prose(read(path))):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        assert page.exists(), target
        if anchor:
            assert anchor in anchors(page), target


def anchors(page):
    """What the headings of a page are called in links, as GitHub does it."""
    text = prose(read(page)) if page.suffix == ".ipynb" else page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@lesson
def test_a_lesson_asks_before_it_tells(path):
    called = calls(read(path))
    assert called.count("predict") >= 2
    assert 2 <= called.count("hint") <= 6, "two or three exercises, each with a hint or two"
    assert "explore" in called


@lesson
def test_the_answer_is_not_read_in_the_cell_that_asks(path):
    """Such a cell does nothing else, and JupyterLab folds its source: of that the first line still shows."""
    for cell in code_cells(read(path)):
        if re.search(r"^(predict|hint)\(", cell.source, re.MULTILINE):
            assert len(ast.parse(cell.source).body) == 1, cell.source
            assert cell.source.startswith(("predict(\n", "hint(\n")), cell.source
            assert cell.metadata.get("jupyter", {}).get("source_hidden"), cell.source
            assert "remove-input" in cell.metadata.get("tags", []), cell.source  # folded on the site too


@lesson
def test_a_lesson_checks_what_it_says(path):
    nodes = [node for cell in code_cells(read(path)) for node in ast.walk(ast.parse(cell.source))]
    assert any(isinstance(node, ast.Assert) for node in nodes)


def test_the_lessons_are_numbered_without_gaps():
    assert [int(path.stem[:2]) for path in NOTEBOOKS] == list(range(len(NOTEBOOKS)))
