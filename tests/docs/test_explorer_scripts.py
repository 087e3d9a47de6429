"""`docs/benchmarks/explorer.py` and `docs/screenshots.py`, in miniature: without a browser as far as that goes."""

import json
from contextlib import nullcontext

import pytest


@pytest.fixture
def explorer(load, monkeypatch):
    module = load("benchmarks/explorer")
    monkeypatch.setattr(module, "SEQUENCES", 32)
    monkeypatch.setattr(module, "BLOCKS", 1024)
    monkeypatch.setattr(module, "KEYS", ("PageUp", "PageDown"))  # a smaller move may leave the small pool as it is
    return module


@pytest.fixture
def screenshots(load, monkeypatch, tmp_path):
    module = load("screenshots")
    monkeypatch.setattr(module, "IMAGES", tmp_path)
    monkeypatch.setattr(module, "THEMES", ("dark",))
    return module


def test_the_traces_that_are_shown(explorer, tmp_path):
    large, long = explorer.large_trace(), explorer.long_trace(800)
    assert len(large.requests) == 32
    assert len(large.steps) > 31 * 33, "the last arrives after so many steps"
    assert (len(long.steps), len(long.requests)) == (800, 4)
    sizes = explorer.packed(long, tmp_path / "long.html")
    assert 1_000 < sizes["payload_bytes"] < sizes["page_bytes"] == (tmp_path / "long.html").stat().st_size


def test_the_report_names_what_was_measured(explorer, capsys):
    spread = explorer.spread([3.0, 1.0, 2.0])
    assert spread == {"median": 2.0, "worst": 3.0, "count": 3}
    large = {"steps": 10_000, "sequences": 256, "payload_bytes": 2_000_000, "page_bytes": 3_000_000, "packing_s": 1.5}
    large |= {"first_paint_ms": spread, "key_to_repaint_ms": spread}
    explorer.report({"large": large, "interact": {"key_to_image_ms": spread}, "interact_over_explorer": 7.5})
    printed = capsys.readouterr().out
    assert "10,000 steps, 256 sequences" in printed
    assert "7.5 times the explorer's" in printed


@pytest.mark.browser
def test_the_explorer_benchmark_runs(explorer, run, browser, tmp_path, monkeypatch):
    monkeypatch.setattr(explorer, "chromium", lambda: nullcontext(browser))
    assert run(explorer, "--presses", 6, "--lab-presses", 1, "--skip-million") == 0
    evidence = json.loads((tmp_path / "explorer.json").read_text())
    assert evidence["large"]["first_paint_ms"]["count"] == 5
    assert evidence["large"]["key_to_repaint_ms"]["count"] == 6
    assert evidence["interact"]["key_to_image_ms"]["count"] == 1


def test_an_unknown_picture_is_refused(screenshots, run):
    with pytest.raises(SystemExit, match="no picture night; there are replay, dense, compare, live"):
        run(screenshots, "replay", "night")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("name", "file", "least_width"),
    [
        ("replay", "explorer", 1000),
        ("dense", "explorer-dense", 1000),
        ("compare", "compare", 1000),
        ("live", "live", 600),
    ],
)
def test_a_picture_is_drawn(screenshots, run, browser, tmp_path, monkeypatch, name, file, least_width):
    from PIL import Image

    monkeypatch.setattr(screenshots, "chromium", lambda: nullcontext(browser))
    assert run(screenshots, name) == 0
    assert [path.name for path in tmp_path.glob("*.png")] == [f"{file}-dark.png"]
    picture = Image.open(tmp_path / f"{file}-dark.png")
    assert picture.width > least_width
    assert len(picture.getcolors(1 << 24)) > 20
