"""The tour in a real JupyterLab, in both themes."""

import os
from pathlib import Path

import pytest
from kit.lab import open_notebook, run_all

pytestmark = pytest.mark.browser


def test_tour_runs_and_its_pictures_show(browser, lab, tmp_path):
    base, theme = lab
    page = browser.new_page(viewport={"width": 1400, "height": 1200})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    open_notebook(page, base, "00_tour.ipynb")
    outputs = run_all(page)
    assert [o for o in outputs if o["output_type"] == "error"] == []
    assert [o for o in outputs if o.get("name") == "stderr"] == []
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 8
    shown = page.locator(".jp-OutputArea-output img")
    widths = shown.evaluate_all("images => images.map(image => image.naturalWidth)")
    assert len(widths) > 0
    assert min(widths) > 600
    assert errors == []
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    for cell in range(0, 39, 6):
        page.evaluate(f"() => jupyterapp.shell.currentWidget.content.scrollToItem({cell}, 'start')")
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"tour-{theme}-{cell:02}.png")
    page.close()
