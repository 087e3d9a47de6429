"""Notebooks without widgets: what stands beside them must be enough."""

import copy

import pytest

from nanoinfer.explore.publish import WIDGET, strip_widgets


def notebook(*bundles):
    cells = [{"cell_type": "markdown", "source": ""}]
    cells += [{"cell_type": "code", "outputs": [{"output_type": "display_data", "data": data}]} for data in bundles]
    cells[-1]["outputs"].append({"output_type": "stream", "text": "hello"})
    return {"nbformat": 4, "metadata": {"widgets": {"state": {}}, "kernelspec": {}}, "cells": cells}


def test_widgets_go_and_static_forms_stay():
    given = notebook(
        {WIDGET: {}, "text/html": "<p>x</p>", "text/plain": "x"}, {"text/plain": "1"}, {WIDGET: {}, "image/png": ""}
    )
    assert strip_widgets(given) == 2
    assert "widgets" not in given["metadata"]
    assert "kernelspec" in given["metadata"]
    kept = [cell["outputs"][0]["data"] for cell in given["cells"][1:]]
    assert kept == [{"text/html": "<p>x</p>", "text/plain": "x"}, {"text/plain": "1"}, {"image/png": ""}]
    assert strip_widgets(given) == 0


def test_a_widget_alone_is_refused_and_nothing_changes():
    given = notebook({WIDGET: {}, "text/html": ""}, {WIDGET: {}, "text/plain": "IntSlider(value=0)"})
    before = copy.deepcopy(given)
    with pytest.raises(ValueError, match=r"cells 2:"):
        strip_widgets(given)
    assert given == before
