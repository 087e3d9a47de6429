"""Every notebook runs from top to bottom, and what is committed reads well without a kernel."""

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


def test_runs_from_top_to_bottom(path, tmp_path):
    """A cell that raises, an assertion among them, fails the test with the cell and its traceback."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where, store_widget_state=False).execute()
    assert all(cell.execution_count for cell in code_cells(notebook))


def test_cells_are_short_and_define_no_classes(path):
    for cell in code_cells(nbformat.read(path, as_version=4)):
        assert len(cell.source.splitlines()) <= 12, cell.source
        assert not any(isinstance(node, ast.ClassDef) for node in ast.walk(ast.parse(cell.source)))


def test_committed_outputs_need_no_kernel(path):
    """Widget output shows nothing on a site without a kernel, so none is committed."""
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert outputs, "commit the notebook with its outputs"
    for output in outputs:
        assert output.output_type != "error"
        assert WIDGET not in output.get("data", {})


def test_opens_with_a_question_and_a_time(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown"
    assert "**The question.**" in first.source
    assert "**Time:**" in first.source
