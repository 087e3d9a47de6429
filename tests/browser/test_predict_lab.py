"""A question in a real JupyterLab: answered by keyboard alone, told only afterwards."""

import nbformat
import pytest
from kit.lab import open_notebook, run_all

pytestmark = pytest.mark.browser

CELLS = [
    'from nanoinfer.course import hint, predict\npredict("Who is `next`?", "B", ["A", "B", "C"], why="By zeppelin.")',
    'predict("How many steps?", lambda: steps)',
    "steps = 12",
    'hint("Look up.")',
]


@pytest.fixture
def page(request, browser, lab, notebooks):
    name = f"{request.node.originalname}.ipynb"  # of its own: JupyterLab keeps the kernel of a path
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, notebooks / name)
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    open_notebook(page, lab[0], name)
    yield page
    page.close()
    (notebooks / name).unlink()


def status(page, number):
    return page.locator(".ni-predict").nth(number).get_by_role("status")


def run(page, index):
    """Run one cell: a click or a key in an output has made its cell the active one."""
    page.evaluate(
        """index => {
             jupyterapp.shell.currentWidget.content.activeCellIndex = index;
             return jupyterapp.commands.execute('notebook:run-cell');
           }""",
        index,
    )


def test_a_choice_by_arrow_keys(page):
    run_all(page)
    question = page.locator(".ni-predict").first
    assert "zeppelin" not in question.inner_text()
    question.get_by_role("radio", name="A").focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    status(page, 0).get_by_text("Right: B.").wait_for()
    assert status(page, 0).inner_text().startswith("\u2713")
    assert "zeppelin" in status(page, 0).inner_text()
    assert question.get_by_role("radio", name="A").is_disabled()


def test_a_number_whose_answer_comes_from_a_later_cell(page):
    for index in (0, 1):
        run(page, index)
    page.locator(".ni-predict").nth(1).get_by_role("spinbutton").focus()
    page.keyboard.press("Enter")
    status(page, 1).get_by_text("Type a number first.").wait_for()
    page.keyboard.type("11")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    status(page, 1).get_by_text("Run them, then press Check again").wait_for()
    run(page, 2)
    page.locator(".ni-predict").nth(1).get_by_role("button", name="Check").focus()
    page.keyboard.press("Enter")
    status(page, 1).get_by_text("You said 11, and it is 12.").wait_for()
    assert status(page, 1).inner_text().startswith("\u2717")
