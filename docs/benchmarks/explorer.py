"""How fast does the explorer answer, against matplotlib and ipywidgets on the same trace?

One simulated trace of 10,000 steps, 256 sequences and 4,096 blocks is (a) written with `trace.to_html`, opened in
Chromium and stepped through with real key presses, and (b) drawn in a real JupyterLab as timeline and block map of
the chosen step under `ipywidgets.interact`. A key press counts from `keydown` to the frame after the picture has
changed. Then a trace of 1,000,000 steps is opened, of which a frame of the explorer shows 50 each.

Needs the extras `notebooks` and `browser` and a Chromium (the system's, or CHROMIUM=path).

usage: python docs/benchmarks/explorer.py [--presses 300] [--lab-presses 12] [--skip-million]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import save_evidence
from tqdm import tqdm

from nanoinfer import SamplingParams, Trace, simulate
from nanoinfer.explore.shell import Exploration as explore

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from kit.lab import chromium, jupyter_lab, open_notebook

SEED = 1
SEQUENCES, BLOCKS = 256, 4_096
VIEWPORT = {"width": 1300, "height": 1000}
KEYS = ("ArrowRight",) * 6 + ("PageUp",) * 2 + ("ArrowLeft", "PageDown")  # mostly forward, and back

# Runs in the page before anything else: notes when the explorer says it is ready and has been painted.
FIRST_PAINT = """() => {
    const seen = new MutationObserver(() => {
        if (!document.querySelector(".ni[data-ready]")) return;
        seen.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => { window.firstPaint = performance.now(); }));
    });
    seen.observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-ready"] });
}"""

# From keydown to the frame after all three pictures and the sentence are those of the new step.
REPAINTS = """() => {
    window.repaints = [];
    const pixels = () => [".ni-strip", ".ni-rows", ".ni-blocks"].map((selector) => {
        const canvas = document.querySelector(selector);
        return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    });
    const equal = (a, b) => a.length === b.length && a.every((value, i) => value === b[i]);
    const allDiffer = (a, b) => a.every((data, i) => !equal(data, b[i]));
    window.checked = 0;
    document.addEventListener("keydown", () => {
        const start = performance.now();
        const before = window.check ? pixels() : null;
        const words = document.querySelector("input[type=range]").getAttribute("aria-valuetext");
        const wait = () => {
            if (document.querySelector("input[type=range]").getAttribute("aria-valuetext") === words) {
                requestAnimationFrame(wait);
                return;
            }
            requestAnimationFrame(() => {
                window.repaints.push(performance.now() - start);
                if (before && allDiffer(before, pixels())) window.checked += 1;
            });
        };
        requestAnimationFrame(wait);
    }, { capture: true });
}"""


# The competent way with `interact`: the timeline is drawn once, only its cursor moves; the block map is drawn anew.
CELLS = (
    """from io import BytesIO
from IPython.display import Image, display
from ipywidgets import IntSlider, interact
from nanoinfer import Trace

trace = Trace.load("trace.jsonl")
timeline = trace.timeline()
cursor = timeline.axes[-1].axvline(0, color="black")

def shown(figure):
    buffer = BytesIO()
    figure.savefig(buffer, dpi=100)
    return Image(buffer.getvalue())""",
    """def show(step):
    cursor.set_xdata([step, step])
    display(shown(timeline), shown(trace.block_map(step)))

last = len(trace.steps) - 1
interact(show, step=IntSlider(value=last // 2, min=0, max=last));""",
)
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
IMAGES = """() => {
    window.images = () => [...document.querySelectorAll(".jp-OutputArea-output img")];
    window.handle = () => document.querySelector(".widget-slider .noUi-handle");
    const isShown = (image) => image.complete && image.naturalWidth;
    return Boolean(handle()) && images().length === 2 && images().every(isShown);
}"""
LAB_REPAINTS = """() => {
    window.repaints = [];
    handle().dataset.lmSuppressShortcuts = "true"; // else JupyterLab keeps the arrow keys
    handle().addEventListener("keydown", () => {
        const start = performance.now();
        const before = images().map((image) => image.src);
        const isNew = (image) => !before.includes(image?.src) && image.complete && image.naturalWidth;
        const wait = () => { // for the second image, the block map: a step may not move the cursor by a pixel
            if (images().length === 2 && isNew(images()[1])) {
                requestAnimationFrame(() => window.repaints.push(performance.now() - start));
            } else requestAnimationFrame(wait);
        };
        requestAnimationFrame(wait);
    });
    handle().focus();
}"""


def large_trace() -> Trace:
    """Arrivals that never stop for long, so that up to 64 sequences run at once in a pool that fills up."""
    rng = random.Random(SEED)
    heads = [[rng.randrange(50_000) for _ in range(400)] for _ in range(4)]
    prompts = [
        (heads[i % 4] if i % 2 else []) + [rng.randrange(50_000) for _ in range(rng.randint(100, 1800))]
        for i in range(SEQUENCES)
    ]
    return simulate(
        prompts,
        [SamplingParams(max_tokens=rng.randint(350, 1900), ignore_eos=True) for _ in prompts],
        arrivals=[i * 33 for i in range(SEQUENCES)],
        kvcache_block_size=16,
        num_kvcache_blocks=BLOCKS,
        max_num_batched_tokens=512,
        max_num_seqs=64,
        max_model_len=8192,
    )


def long_trace(steps: int) -> Trace:
    """`steps` steps of at most two sequences at a time, 400 tokens each."""
    count = steps // 400 * 2
    rng = random.Random(SEED)
    return simulate(
        [[rng.randrange(50_000) for _ in range(20)] for _ in range(count)],
        SamplingParams(max_tokens=400, ignore_eos=True),
        arrivals=[i // 2 * 400 for i in range(count)],
        kvcache_block_size=16,
        num_kvcache_blocks=64,
        max_num_seqs=2,
    )


# ---- the explorer -------------------------------------------------------------------------------------


def packed(trace: Trace, path: Path) -> dict[str, Any]:
    """Write the page; how long that took and how large it and what is in it are."""
    start = time.perf_counter()
    exploration = explore(trace)
    seconds = time.perf_counter() - start
    path.write_text(exploration.page(), encoding="utf-8")
    payload = len(json.dumps(exploration._payload, separators=(",", ":")))
    return {"packing_s": round(seconds, 2), "payload_bytes": payload, "page_bytes": path.stat().st_size}


def first_paints(browser: Any, path: Path, times: int = 5) -> list[float]:
    """Milliseconds from the start of navigation to the frame after the first picture, each in a fresh page."""
    found = []
    for _ in range(times):
        page = browser.new_page(viewport=VIEWPORT)
        page.add_init_script(f"({FIRST_PAINT})()")
        page.goto(path.as_uri())
        page.wait_for_function("window.firstPaint", timeout=120_000)
        found.append(round(page.evaluate("window.firstPaint"), 1))
        page.close()
    return found


def repaints(browser: Any, path: Path, presses: int) -> list[float]:
    """Milliseconds from each key to the frame after the pictures changed."""
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(path.as_uri())
    page.wait_for_selector(".ni[data-ready]")
    page.evaluate(f"({REPAINTS})()")
    page.locator("input[type=range]").focus()
    for position in (0.25, 0.5, 0.75):  # where the pool is full
        last = int(page.locator("input[type=range]").get_attribute("max"))
        page.locator("input[type=range]").evaluate(
            "(slider, v) => { slider.value = v; slider.dispatchEvent(new Event('input')); }", int(last * position)
        )
        page.wait_for_timeout(300)
        for i in range(presses // 3):
            page.keyboard.press(KEYS[i % len(KEYS)])
            page.wait_for_timeout(20)
    page.wait_for_timeout(500)
    found = page.evaluate("window.repaints")
    page.evaluate("window.check = true")  # comparing pixels costs time, so it is done apart
    for key in KEYS:
        page.keyboard.press(key)
        page.wait_for_timeout(400)
    if page.evaluate("window.checked") != len(KEYS):
        raise RuntimeError("some keys did not change the pictures")
    page.close()
    if len(found) != presses // 3 * 3:
        raise RuntimeError(f"{presses // 3 * 3} keys gave {len(found)} pictures")
    return [round(ms, 1) for ms in found]


# ---- matplotlib and ipywidgets ----------------------------------------------------------------------


def lab_repaints(browser: Any, trace: Trace, presses: int) -> list[float]:
    """Milliseconds from a key on the slider of `interact` to the new image on the screen."""
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        root, home = Path(folder) / "root", Path(folder) / "home"
        root.mkdir()
        trace.save(root / "trace.jsonl")
        cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
        notebook = nbformat.v4.new_notebook(cells=cells, metadata=KERNEL)
        nbformat.write(notebook, root / "interact.ipynb")
        with jupyter_lab(root, home) as base:
            page = browser.new_page(viewport=VIEWPORT | {"height": 1600})
            open_notebook(page, base, "interact.ipynb")
            page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells'); }")
            page.wait_for_function(IMAGES, timeout=180_000)
            page.evaluate(LAB_REPAINTS)
            for number in tqdm(range(presses), desc="JupyterLab", disable=None):
                page.keyboard.press("ArrowRight")
                page.wait_for_function(f"window.repaints.length > {number}", timeout=120_000)
                page.wait_for_timeout(200)
            found = page.evaluate("window.repaints")
            page.close()
    return [round(ms, 1) for ms in found]


# ---- the report --------------------------------------------------------------------------------------


def spread(values: list[float]) -> dict[str, Any]:
    return {"median": round(statistics.median(values), 1), "worst": max(values), "count": len(values)}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        results["browser"] = f"Chromium {browser.version}, headless"
        print("simulating 10,000 steps", flush=True)
        trace, page = large_trace(), Path(folder) / "large.html"
        results["large"] = {"steps": len(trace.steps), "sequences": SEQUENCES, "blocks": BLOCKS} | packed(trace, page)
        results["large"]["first_paint_ms"] = spread(first_paints(browser, page))
        results["large"]["key_to_repaint_ms"] = spread(repaints(browser, page, arguments.presses))
        results["interact"] = {"key_to_image_ms": spread(lab_repaints(browser, trace, arguments.lab_presses))}
        ratio = results["interact"]["key_to_image_ms"]["median"] / results["large"]["key_to_repaint_ms"]["median"]
        results["interact_over_explorer"] = round(ratio, 1)
        if not arguments.skip_million:
            print("simulating 1,000,000 steps", flush=True)
            trace, page = long_trace(1_000_000), Path(folder) / "million.html"
            results["million"] = {"steps": len(trace.steps), "sequences": len(trace.requests)} | packed(trace, page)
            results["million"]["first_paint_ms"] = spread(first_paints(browser, page, 3))
            results["million"]["key_to_repaint_ms"] = spread(repaints(browser, page, arguments.presses))
    return results


def report(results: dict[str, Any]) -> None:
    for name in ("large", "million"):
        if name not in results:
            continue
        r = results[name]
        print(f"\n{r['steps']:,} steps, {r['sequences']:,} sequences")
        print(f"  payload         {r['payload_bytes'] / 1e6:.2f} MB of a page of {r['page_bytes'] / 1e6:.2f} MB")
        print(f"  packing         {r['packing_s']} s")
        print(
            f"  first paint     median {r['first_paint_ms']['median']:.0f} ms, worst {r['first_paint_ms']['worst']:.0f}"
        )
        print(
            f"  key to repaint  median {r['key_to_repaint_ms']['median']} ms, worst {r['key_to_repaint_ms']['worst']}"
        )
    r = results["interact"]["key_to_image_ms"]
    print(
        f"\nmatplotlib + interact: key to image median {r['median']:.0f} ms, worst {r['worst']:.0f} ({r['count']} keys)"
    )
    print(f"  {results['interact_over_explorer']} times the explorer's")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presses", type=int, default=300)
    parser.add_argument("--lab-presses", type=int, default=12)
    parser.add_argument("--skip-million", action="store_true")
    results = measure(parser.parse_args())
    report(results)
    print(f"evidence: {save_evidence('explorer', results, SEED)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
