"""Every state is told apart without colour, and its colours stay apart for eyes that see fewer of them.

Chromium imitates the deficiencies (DevTools' emulation); distances are CIE 1976, in CIELAB under D65.
"""

import base64
from io import BytesIO
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from nanoinfer import SamplingParams, simulate
from nanoinfer.explore.shell import Exploration as explore
from nanoinfer.trace.spans import sequence_spans
from nanoinfer.viz.theme import DARK, LIGHT

pytestmark = pytest.mark.browser

DEFICIENCIES = ("none", "protanopia", "deuteranopia", "tritanopia")
SEQUENCE_STATES = ("waiting", "prefill", "decode", "preempted", "finished")
BLOCK_STATES = ("empty", "cached", "private", "shared", "selected")
LEAST_APART = 12  # where about 2 can just be seen, and black and white are 100 apart
LEAST_CONTRAST = {"none": 3.0, "achromatopsia": 3.0}  # by WCAG, which knows normal eyes only
LEAST_CONTRAST_IMITATED = 2.8


def emulate(page, deficiency):
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setEmulatedVisionDeficiency", {"type": deficiency})


def image_of(locator):
    return np.asarray(Image.open(BytesIO(locator.screenshot())).convert("RGB"))


def luminance(rgb):
    linear = np.where(rgb <= 10, rgb / 255 / 12.92, ((rgb / 255 + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def lab(rgb):
    """CIELAB of an sRGB colour, 0 to 255."""
    c = np.asarray(rgb) / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.maximum(to_xyz @ linear / to_xyz.sum(axis=1), 216 / 24389))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def seen(open_page, theme, deficiency):
    """Each colour of the palette as it looks."""
    names = [*SEQUENCE_STATES, *BLOCK_STATES, "background"]
    squares = "".join(
        f"<i style='float:left;width:20px;height:20px;background:{getattr(theme, n)}'></i>" for n in names
    )
    page = open_page(
        f"<!doctype html><body><div style='width:{20 * len(names)}px;height:20px'>{squares}</div>", ready=False
    )
    emulate(page, deficiency)
    picture = image_of(page.locator("div"))
    return {name: picture[10, 20 * i + 10] for i, name in enumerate(names)}


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colours_of_states_stay_apart(open_page, theme, deficiency):
    colors = seen(open_page, theme, deficiency)
    if deficiency != "none":
        assert any(tuple(colors[n]) != tuple(seen(open_page, theme, "none")[n]) for n in colors), "it is imitated"
    apart = {
        (a, b): float(np.linalg.norm(lab(colors[a]) - lab(colors[b])))
        for states in (SEQUENCE_STATES, BLOCK_STATES)
        for a, b in combinations(states, 2)
    }
    assert {pair: distance for pair, distance in apart.items() if distance < LEAST_APART} == {}


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("deficiency", [*DEFICIENCIES, "achromatopsia"])
def test_states_of_a_sequence_stand_out_from_the_page(open_page, theme, deficiency):
    colors = {name: luminance(rgb) for name, rgb in seen(open_page, theme, deficiency).items()}
    ratios = {}
    for name in SEQUENCE_STATES:
        low, high = sorted((colors[name], colors["background"]))
        ratios[name] = (high + 0.05) / (low + 0.05)
    least = LEAST_CONTRAST.get(deficiency, LEAST_CONTRAST_IMITATED)
    assert {name: ratio for name, ratio in ratios.items() if ratio < least} == {}


# ---- without any colour ---------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_two_marks_of_a_legend_share_a_shape(pressed, open_page, theme):
    page = open_page(explore(pressed, step=21, select=3, theme=theme).page(), device_scale_factor=2)
    emulate(page, "achromatopsia")
    for number, count in ((0, 6), (1, 6)):
        entries = page.locator(".ni-legend").nth(number).locator("span:has(> i)")
        names = entries.all_inner_texts()
        assert len(names) == count
        assert all(names), "each is named beside it"
        shapes = [image_of(entry.locator("i")) for entry in entries.all()]
        room = np.max([shape.shape[:2] for shape in shapes], axis=0)
        inks = [ink_of(shape, theme, room) for shape in shapes]
        for (a, first), (b, second) in combinations(zip(names, inks, strict=True), 2):
            assert (first != second).mean() > 0.02, (a, b)


def ink_of(picture, theme, room):
    """Where a mark is more than half as far from the background as it ever is."""
    color = (LIGHT if theme == "light" else DARK).background
    background = luminance(np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)], dtype=float))
    distance = np.abs(luminance(picture.astype(float)) - background)
    ink = np.zeros(room, dtype=bool)
    ink[: picture.shape[0], : picture.shape[1]] = distance > distance.max() / 2
    return ink


def grey_of(page, selector, theme):
    """A canvas over its background, without its colours: 0 to 255."""
    url = page.locator(selector).evaluate("canvas => canvas.toDataURL()")
    drawn = Image.open(BytesIO(base64.b64decode(url.split(",")[1]))).convert("RGBA")
    background = (LIGHT if theme == "light" else DARK).background
    whole = Image.alpha_composite(Image.new("RGBA", drawn.size, background), drawn)
    return np.asarray(whole)[..., :3] @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_kind_of_block_has_its_shape_in_the_map(open_page, theme):
    """Shared blocks are framed, cached ones dotted, empty ones outlined, and those of the selection lack a corner."""
    prompts = [[*range(8), 50, 51], [*range(8), 60, 61], [*range(100, 109)]]
    most = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (9, 9, 2)]
    trace = simulate(prompts, most, arrivals=[0, 1, 1], kvcache_block_size=4, num_kvcache_blocks=16)
    changes = {event.step for event in trace.events if event.block_id is not None}  # their dashes are no part of it
    step = next(s.index for s in trace.steps if s.index not in changes and 2 not in trace.state(s.index).running)
    state = trace.state(step)
    cached = {b for b in state.hash_index.values() if not state.ref_counts[b]}
    page = open_page(explore(trace, step=step, select=0, theme=theme).page())
    grey = grey_of(page, ".ni-blocks", theme)
    kinds = set()
    for block, count in enumerate(state.ref_counts):
        x, y = 22 + 40 * (block % 8), 40 * (block // 8)
        cell = np.abs(grey[y : y + 40, x : x + 40] - grey[y + 8, x + 14])  # from its fill
        framed, outlined = cell[20, 2:6].max() > 40, cell[20, 2] > 12
        corner = cell[5, 5] > 12
        dotted = cell[27, 19] > 40 < cell[27, 20]
        shape = (outlined, framed, corner, dotted)
        chosen = block in state.block_tables[0]
        kind = "shared" if count > 1 else "private" if count else "cached" if block in cached else "empty"
        kinds.add((kind, chosen))
        assert framed == (kind == "shared"), (block, kind, shape)
        assert framed or outlined == (kind == "empty"), (block, kind, shape)
        assert corner == chosen, (block, kind, shape)
        if kind != "shared":  # whose count stands there
            assert dotted == (kind == "cached"), (block, kind, shape)
    assert kinds == {("shared", True), ("private", True), ("private", False), ("cached", False), ("empty", False)}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_state_of_a_sequence_has_its_height_in_the_timeline(pressed, open_page, theme):
    page = open_page(explore(pressed, step=0, theme=theme).page(), width=1200)
    grey = grey_of(page, ".ni-rows", theme)
    column, row = (grey.shape[1] - 62 - 14) / len(pressed.steps), grey.shape[0] / len(pressed.requests)
    shares = {"waiting": [], "decode": [], "preempted": []}  # of the row's height and area that are not background
    for span in sequence_spans(pressed):
        if span.kind in shares and span.end - span.start > 2 and span.start > 0 and span.end < len(pressed.steps):
            left, right = (round(62 + column * (step + 0.2)) for step in (span.start, span.end - 1))
            top = round(row * span.seq_id)
            cell = grey[top : top + round(row), left:right]
            ink = np.abs(cell - np.median(cell[[0, -1]])) > 16
            shares[span.kind].append((ink.any(axis=1).mean(), ink.mean()))
    height, area = ({kind: np.median(part, axis=0)[i] for kind, part in shares.items()} for i in (0, 1))
    assert height["waiting"] == area["waiting"] == pytest.approx(0.2, abs=0.08)
    assert height["decode"] == area["decode"] == pytest.approx(0.45, abs=0.1)
    assert height["preempted"] > 0.75
    assert 0.2 < area["preempted"] < height["preempted"] - 0.15, "hatched, not filled"
