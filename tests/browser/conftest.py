from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(scope="session")
def notebooks(tmp_path_factory):
    """A copy of the notebooks without outputs, so that whatever is seen was made here."""
    import nbformat

    folder = tmp_path_factory.mktemp("notebooks")
    for path in NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, folder / path.name)
    return folder


@pytest.fixture(scope="session", params=["light", "dark"])
def lab(request, notebooks, tmp_path_factory):
    """(base URL, theme) of a running JupyterLab in each theme."""
    from kit.lab import jupyter_lab

    with jupyter_lab(notebooks, tmp_path_factory.mktemp("home"), dark=request.param == "dark") as base:
        yield base, request.param
