"""A recorded trace in a real JupyterLab: mouse and keyboard move the replay, and it shows what the trace says."""

import nbformat
import pytest
from kit.helpers import limits, params, prompt
from kit.lab import crowded, jupyter_lab, open_notebook, run_cell
from kit.workloads import pressed_run

from nanoinfer import Trace, simulate
from nanoinfer.viz.theme import DARK, LIGHT

pytestmark = pytest.mark.browser

SLIDER = "input[type=range]"
SETUP = "from nanoinfer import Trace\na, b = Trace.load('a.jsonl'), Trace.load('b.jsonl')"
MAP_LEFT, MAP_CELL = 22, 40  # px left of the block map and of its cells, for pools of 10 to 99 blocks


@pytest.fixture(scope="module")
def traces():
    return pressed_run(), simulate([prompt(9, i) for i in range(4)], params(8), **limits(4, 12))


@pytest.fixture(scope="module", params=["light", "dark"])
def server(request, traces, tmp_path_factory):
    root = tmp_path_factory.mktemp("replay")
    for name, trace in zip("ab", traces, strict=True):
        trace.save(root / f"{name}.jsonl")
    with jupyter_lab(root, tmp_path_factory.mktemp("home"), dark=request.param == "dark") as base:
        yield base, root, DARK if request.param == "dark" else LIGHT


class Replay:
    """One replay in a notebook: the frame that a cell put out."""

    def __init__(self, page, cell):
        self.page = page
        self.cell = page.locator(".jp-CodeCell").nth(cell)
        self.show()
        self.inside = self.cell.locator("iframe").content_frame
        self.inside.locator(".ni[data-ready]").wait_for(timeout=60_000)

    def show(self):
        """JupyterLab lays out only what is in view."""
        self.cell.evaluate("cell => cell.scrollIntoView()")

    def document(self):
        return self.cell.locator("iframe").element_handle().content_frame()

    def wait_step(self, step):
        self.inside.locator(f"{SLIDER}[aria-valuetext^='Step {step} (']").wait_for()

    def step(self):
        return int(self.inside.locator(SLIDER).input_value())

    def selected(self):
        return self.inside.get_by_label("Selected sequence").input_value()

    def press(self, key):
        self.inside.locator(SLIDER).press(key)

    def click(self, selector, x, y):
        self.inside.locator(selector).click(position={"x": x, "y": y})

    def pixel(self, selector, x, y):
        """The colour of a canvas at a point in CSS pixels, as #rrggbb."""
        script = """(canvas, [x, y]) => {
            const at = [x, y].map((value) => Math.round(value * devicePixelRatio));
            const data = canvas.getContext('2d').getImageData(...at, 1, 1).data;
            return '#' + Array.from(data.slice(0, 3), (part) => part.toString(16).padStart(2, '0')).join('');
        }"""
        return self.inside.locator(selector).evaluate(script, [x, y])

    def blocks(self, count):
        """The colour of every block, read where neither its number nor a dashed outline covers it."""
        columns = 16 if count > 16 else 8
        corners = [(MAP_LEFT + MAP_CELL * (i % columns) + 8, MAP_CELL * (i // columns) + 8) for i in range(count)]
        return [self.pixel(".ni-blocks", *corner) for corner in corners]

    def cursor(self):
        """Left and right end of the cursor's upper edge in the strip over the timeline, read from the picture."""
        script = """canvas => {
            const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, 5 * devicePixelRatio);
            const columns = new Set();
            for (let i = 0; i < data.length / 4; i += 1)
                if (data[4 * i + 3] > 128) columns.add(i % width / devicePixelRatio);
            const found = [...columns].filter(x => x > 58); // right of the labels
            return [Math.min(...found), Math.max(...found)];
        }"""
        return self.inside.locator(".ni-strip").evaluate(script)

    def agrees(self, trace, step, theme):
        """Everything on the page is what `trace` says about `step`; nobody is selected."""
        self.wait_step(step)
        assert self.inside.locator(".ni-sentences p").all_inner_texts() == trace.explain(step).split("\n")
        state = trace.state(step)
        for at, queue in ((1, state.waiting), (3, state.running)):
            chips = self.inside.locator(".ni-chips").nth(at).locator("[data-seq]")
            assert [int(chip.get_attribute("data-seq")) for chip in chips.all()] == queue
        assert self.blocks(len(state.ref_counts)) == block_colors(state, theme)
        left, right = self.cursor()
        width = self.inside.locator(".ni-strip").bounding_box()["width"]
        begin, column = 62 + (width - 62 - 14) * step / len(trace.steps), (width - 62 - 14) / len(trace.steps)
        assert (left, right) == pytest.approx((begin, begin + column), abs=1.5)


def block_colors(state, theme):
    cached = set(state.hash_index.values())
    kinds = {0: theme.empty, 1: theme.private}
    return [
        theme.cached if not count and block in cached else kinds.get(count, theme.shared)
        for block, count in enumerate(state.ref_counts)
    ]


@pytest.fixture
def opened(browser, server, request):
    """Opens a notebook of cells and runs it; gives (page, theme); fails on any script error in the page."""
    base, root, theme = server
    pages, errors = [], []

    def opened(*cells, scale=1):
        name = f"{request.node.originalname}.ipynb"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (SETUP, *cells)])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, root / name)
        viewport = {"width": 1400 // scale, "height": 1500 // scale}
        page = browser.new_page(viewport=viewport, device_scale_factor=scale)
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(f"{error}\n{error.stack}"))
        open_notebook(page, base, name)
        page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
        return page, theme

    yield opened
    for page in pages:
        page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.shutdown()")
        page.close()
    assert errors == []


def test_the_slider_moves_by_mouse_and_keyboard_and_all_follows(opened, traces):
    trace = traces[0]
    page, theme = opened("a.explore()")
    replay = Replay(page, 1)
    replay.agrees(trace, 0, theme)
    for key, step in [("ArrowRight", 1), ("PageUp", 11), ("ArrowLeft", 10), ("End", len(trace.steps) - 1)]:
        replay.press(key)
        replay.agrees(trace, step, theme)
    preempted = next(step.index for step in trace.steps if step.preempted)
    replay.press("Home")
    replay.wait_step(0)
    replay.press("]")
    replay.agrees(trace, preempted, theme)

    box = replay.inside.locator(SLIDER).bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * preempted / len(trace.steps), middle)
    page.mouse.down()
    for share in (0.4, 0.6, 0.8):  # held down, the pictures follow
        page.mouse.move(box["x"] + box["width"] * share, middle)
        near = range(int((share - 0.06) * len(trace.steps)), int((share + 0.06) * len(trace.steps)))
        replay.document().wait_for_function(
            "([first, last, slider]) => { const { value } = document.querySelector(slider);"
            " return first <= value && value <= last; }",
            arg=[near.start, near.stop, SLIDER],
        )
        replay.agrees(trace, replay.step(), theme)
    page.mouse.up()


def test_a_click_selects_everywhere_and_goes_to_the_step(opened, traces):
    trace = traces[0]
    page, theme = opened("a.explore()")
    replay = Replay(page, 1)
    box = replay.inside.locator(".ni-rows").bounding_box()
    step, row = 21, 3
    column = (box["width"] - 62 - 14) / len(trace.steps)
    replay.click(".ni-rows", 62 + (step + 0.5) * column, (row + 0.5) * box["height"] / len(trace.requests))
    replay.wait_step(step)
    assert replay.selected() == str(row)
    state = trace.state(step)
    assert state.block_tables[row]
    for at, queue in ((1, state.waiting), (3, state.running)):  # its chip, if it stands there
        chips = replay.inside.locator(".ni-chips").nth(at).locator(".ni-selected")
        assert [int(chip.get_attribute("data-seq")) for chip in chips.all()] == [row] * queue.count(row)
    colors = replay.blocks(len(state.ref_counts))
    assert [block for block, color in enumerate(colors) if color == theme.selected] == sorted(state.block_tables[row])
    entries = replay.inside.locator(".ni-entry b").all_inner_texts()
    assert [int(entry.split("\u2192")[1].split("\u00d7")[0]) for entry in entries] == state.block_tables[row]

    other = next(seq_id for seq_id in state.running if seq_id != row)
    replay.inside.locator(".ni-chips").nth(3).locator(f"[data-seq='{other}']").click()
    replay.inside.locator(f".ni-chips .ni-selected[data-seq='{other}']").first.wait_for()
    assert replay.selected() == str(other)
    assert replay.step() == step, "a queue entry only selects"


def test_two_replays_on_a_page_do_not_disturb_each_other(opened, traces):
    page, theme = opened("a.explore()", "b.explore(step=3)")
    second = Replay(page, 2)
    first = Replay(page, 1)
    first.press("PageUp")
    first.agrees(traces[0], 10, theme)
    second.show()
    second.agrees(traces[1], 3, theme)
    second.press("ArrowRight")
    second.agrees(traces[1], 4, theme)
    second.click(".ni-rows", 100, 10)
    second.inside.locator(f"{SLIDER}:not([aria-valuetext^='Step 4 ('])").wait_for()
    assert second.selected() == "0"
    first.show()
    first.agrees(traces[0], 10, theme)
    assert first.selected() == ""


def test_a_cell_run_three_times_leaves_one_set_of_handlers(opened, traces):
    page, theme = opened("a.explore()")
    for _ in range(2):
        run_cell(page, 1)
    replay = Replay(page, 1)
    assert page.locator(".nanoinfer-explorer").count() == 1
    assert len(page.frames) == 2, "the page and one replay"
    replay.agrees(traces[0], 0, theme)
    # A drawing sizes the block map anew, so each redraw is one change of its width.
    replay.inside.locator(".ni-blocks").evaluate(
        "canvas => { window.redraws = 0; new MutationObserver(all => { window.redraws += all.length; })"
        ".observe(canvas, { attributes: true, attributeFilter: ['width'] }); }"
    )
    for step in (1, 2, 3):
        replay.press("ArrowRight")
        replay.agrees(traces[0], step, theme)
        redraws = replay.inside.locator(".ni").evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(window.redraws))))"
        )
        assert redraws == step, "one for each move"


def test_at_twice_the_size_it_fits_its_cell(opened, traces):
    """A window of 1400 px at 200 % leaves JupyterLab's cells some 500 px."""
    page, theme = opened("a.explore(step=21, select=3)", scale=2)
    replay = Replay(page, 1)
    assert replay.inside.locator(".ni").get_attribute("data-theme") == theme.name
    canvas = replay.inside.locator(".ni-rows")
    assert canvas.evaluate("c => c.width") == round(2 * canvas.bounding_box()["width"])
    assert crowded(replay.inside.locator(".ni")) == []
    frame, content = replay.cell.locator("iframe").bounding_box(), replay.inside.locator("main").bounding_box()
    assert content["height"] <= frame["height"]


def test_the_saved_notebook_still_shows_the_replay(opened, server, traces):
    """What a cell puts out is stored and needs no kernel: closed and opened again, it moves."""
    base, root, theme = server
    page, _ = opened("a.explore(step=5)")
    Replay(page, 1).agrees(traces[0], 5, theme)
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    name = "test_the_saved_notebook_still_shows_the_replay.ipynb"
    stored = nbformat.read(root / name, as_version=4)
    assert "widgets" not in stored.metadata
    assert set(stored.cells[1].outputs[0]["data"]) == {"text/html", "image/png", "text/plain"}
    page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.shutdown()")
    open_notebook(page, base, name)
    replay = Replay(page, 1)
    replay.press("ArrowRight")
    replay.agrees(traces[0], 6, theme)


def test_traces_survive_the_file_they_came_from(traces, tmp_path):
    """The notebooks read files: what they show is held against the traces in this process."""
    traces[0].save(tmp_path / "a.jsonl")
    assert Trace.load(tmp_path / "a.jsonl").explain(21) == traces[0].explain(21)
