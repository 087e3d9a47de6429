"""The pictures of the explorer in `docs/images`, each in both themes: replay, dense, comparison, live.

Replay and comparison show the demonstration run, "dense" the trace of `benchmarks/explorer.py`, and live an engine in
a real JupyterLab. Look at them afterwards: nothing else notices a label that covers another.

Needs the extras `notebooks` and `browser` and a Chromium (the system's, or CHROMIUM=path).

usage: python docs/screenshots.py [replay] [dense] [compare] [live]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image

from nanoinfer import LLM, SamplingParams, Trace, compare
from nanoinfer.demo import SETTINGS, conversations

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
sys.path[:0] = [str(DOCS / "benchmarks"), str(DOCS.parent / "tests")]
from explorer import large_trace  # noqa: E402  # found by the line above
from kit.lab import chromium, jupyter_lab, open_notebook  # noqa: E402

THEMES = ("light", "dark")
ONE_WIDE, TWO_WIDE = 1140, 1240  # px of the window
LIVE_CELL = """from nanoinfer import LLM, SamplingParams
llm = LLM("tiny", kvcache_block_size=4, num_kvcache_blocks=14, max_num_batched_tokens=16)
prompts = ["Once upon a time there was a fox", "Once upon a time there was a small bird", "The river"]
llm.explore(prompts, SamplingParams(max_tokens=18, ignore_eos=True, temperature=0))"""
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def demonstration(policy: str = "prefill_first") -> Trace:
    """The run of `nanoinfer demo`."""
    with LLM("tiny", policy=policy, **SETTINGS) as llm:
        trace: Trace = llm.chat(conversations(), SamplingParams(temperature=0, max_tokens=48), record=True)
    return trace


def save(png: bytes, name: str) -> None:
    """In all of its colours: fewer would lose the rare ones, and those matter most."""
    path = IMAGES / f"{name}.png"
    Image.open(BytesIO(png)).convert("RGB").save(path, optimize=True)
    print(path)


def shoot(browser: Any, shown: Any, name: str, width: int, ready: Callable[[Any], None] | None = None) -> None:
    """Both themes of something that can be explored."""
    for theme in THEMES:
        shown.theme = theme
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_content(shown.page())
        page.wait_for_selector(".ni[data-ready]")
        if ready:
            ready(page)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        save(page.locator(".ni").screenshot(), f"{name}-{theme}")
        page.close()


def replay(browser: Any) -> None:
    shoot(browser, demonstration().explore(step=21, select=3), "explorer", ONE_WIDE)


def dense(browser: Any) -> None:
    shoot(browser, large_trace().explore(step=2300, select=64), "explorer-dense", ONE_WIDE)


def comparison(browser: Any) -> None:
    def at_both_selected(page: Any) -> None:
        page.locator("input[type=range]").evaluate("s => { s.value = 45; s.dispatchEvent(new Event('input')); }")
        page.get_by_label("Selected sequence").fill("3")
        page.keyboard.press("Enter")
        page.get_by_label("Selected sequence").blur()

    shown = compare(demonstration(), demonstration("mixed")).explore()
    shoot(browser, shown, "compare", TWO_WIDE, at_both_selected)


def live(browser: Any) -> None:
    for theme in THEMES:
        with tempfile.TemporaryDirectory() as folder:
            root, home = Path(folder) / "root", Path(folder) / "home"
            root.mkdir()
            notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(LIVE_CELL)], metadata=KERNEL)
            nbformat.write(notebook, root / "live.ipynb")
            with jupyter_lab(root, home, dark=theme == "dark") as base:
                page = browser.new_page(viewport={"width": 1400, "height": 1500})
                open_notebook(page, base, "live.ipynb")
                page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
                page.wait_for_selector(".ni-live[data-ready]")
                page.locator(".ni-live-seq[data-seq='1']").click()
                page.get_by_label("Run until", exact=True).select_option("preemption")
                page.get_by_role("button", name="Run until", exact=True).click()
                page.locator(".ni-live-note", has_text="preempted").wait_for()
                page.locator(".ni-live-candidates li").nth(7).wait_for()
                page.mouse.move(5, 5)
                page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
                save(page.locator(".ni-live").screenshot(), f"live-{theme}")
                page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.shutdown()")
                page.close()


PICTURES = {"replay": replay, "dense": dense, "compare": comparison, "live": live}


def main() -> int:
    wanted = sys.argv[1:] or [*PICTURES]
    if unknown := set(wanted) - set(PICTURES):
        raise SystemExit(f"no picture {', '.join(sorted(unknown))}; there are {', '.join(PICTURES)}")
    with chromium() as browser:
        for name in wanted:
            PICTURES[name](browser)
    return 0


if __name__ == "__main__":
    sys.exit(main())
