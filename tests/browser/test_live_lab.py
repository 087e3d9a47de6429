"""The live explorer in a real JupyterLab: buttons, keys, two at once, cells run again, interrupts."""

import ast
import os
from pathlib import Path

import nbformat
import pytest
from kit.lab import crowded, jupyter_lab, open_notebook, run_cell

pytestmark = pytest.mark.browser

SLIDER = ".ni-slider"
EVIL = "<img src=x onerror=\"document.title='owned'\">"
SETUP = """
from nanoinfer import LLM, SamplingParams
from nanoinfer.explore.live import LiveExplorer as live

def engine(**more):
    return LLM("tiny", kvcache_block_size=4, max_num_batched_tokens=16, **({"num_kvcache_blocks": 14} | more))

PROMPTS = ["Once upon a time there was a fox", "Once upon a time there was a small bird", "The river"]
def show(llm, prompts=PROMPTS, most=18, **more):
    params = SamplingParams(max_tokens=most, ignore_eos=True, temperature=0)
    return live(llm, prompts, params, decode=llm.tokenizer.decode, **more)
"""
ONE = ["llm = engine()", "w = show(llm)\nw"]
# Steps that take 30 ms, and enough of them: on a fast machine a run would be over before a test has clicked.
SLOW = [
    "import time\nllm = engine(num_kvcache_blocks=1500)\nlaunch = llm.runner.launch\n"
    "llm.runner.launch = lambda plan: (time.sleep(0.03), launch(plan))[1]",
    "w = show(llm, most=1500)\nw",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    with jupyter_lab(folder, tmp_path_factory.mktemp("home")) as base:
        yield base


class Notebook:
    """A notebook in a page: run cells, ask the kernel, press buttons."""

    def __init__(self, page):
        self.page = page
        self.live = page.locator(".ni-live")

    def run_cell(self, number):
        run_cell(self.page, number)

    def ask(self, expression, code=""):
        """The value of a Python expression in the kernel, after running `code`."""
        script = """async ([code, expression]) => {
            const { kernel } = jupyterapp.shell.currentWidget.context.sessionContext.session;
            const options = { code, store_history: false, user_expressions: { value: expression } };
            const reply = await kernel.requestExecute(options).done;
            return reply.content.user_expressions?.value ?? reply.content;
        }"""
        answer = self.page.evaluate(script, [code, expression])
        assert answer.get("status") == "ok", answer
        return ast.literal_eval(answer["data"]["text/plain"])

    def interrupt(self):
        self.page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.interrupt()")

    def button(self, name, live=None):
        return (live or self.live).get_by_role("button", name=name, exact=True)

    def newest(self, live=None):
        slider = (live or self.live).locator(SLIDER)
        return int(slider.get_attribute("max")) if slider.count() else -1

    def wait_note(self, words, live=None):
        (live or self.live).locator(".ni-live-note", has_text=words).wait_for(timeout=20_000)

    def wait_step(self, step, live=None):
        (live or self.live).locator(f"{SLIDER}[max='{step}']").wait_for(timeout=20_000)
        (live or self.live).locator(".ni-sentences", has_text=f"Step {step} (").wait_for(timeout=20_000)

    def row(self, seq_id):
        return self.live.locator(f".ni-live-seq[data-seq='{seq_id}']")


@pytest.fixture
def opened(browser, server, folder, request):
    """Opens a notebook of cells, runs them and gives it; fails on any script error in the page."""
    pages, errors = [], []

    def opened(*cells, base=server, root=folder):
        name = f"{request.node.name.split('[')[0]}-{len(pages)}.ipynb"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (SETUP, *cells)])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, root / name)
        page = browser.new_page(viewport={"width": 1400, "height": 1500})
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(f"{error}\n{error.stack}"))
        open_notebook(page, base, name)
        page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait_for_selector(".ni-live[data-ready]", timeout=60_000)
        return Notebook(page)

    yield opened
    for page in pages:
        page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.shutdown()")
        page.close()
    assert errors == []


def test_step_adds_a_step_and_tells_what_explain_tells(opened):
    book = opened(*ONE)
    assert book.newest() == -1
    for step in range(3):
        book.button("Step").click()
        book.wait_step(step)
        sentences = book.live.locator(".ni-sentences p").all_inner_texts()
        assert sentences == book.ask(f"w.trace.explain({step})").split("\n")
    assert book.ask("len(w.trace.steps)") == 3
    book.live.locator(SLIDER).focus()
    book.page.keyboard.press("Home")
    book.live.locator(".ni-sentences", has_text="Step 0 (").wait_for()
    book.button("Step").click()
    book.live.locator(f"{SLIDER}[max='3']").wait_for()
    assert book.live.locator(SLIDER).input_value() == "0", "who looks back stays there"


def test_run_until_the_first_preemption_stops_there(opened):
    book = opened(*ONE)
    book.live.get_by_label("Run until", exact=True).select_option("preemption")
    book.button("Run until").click()
    book.wait_note("preempted")
    last = book.ask("len(w.trace.steps)") - 1
    book.wait_step(last)
    assert book.ask("[bool(s.preempted) for s in w.trace.steps]") == [False] * last + [True]
    assert not book.ask("w.running")
    victim = book.ask("w.trace.steps[-1].preempted[0].victim")
    assert "preempted" in book.row(victim).inner_text()
    book.live.get_by_label("Run until", exact=True).select_option("step")
    book.live.get_by_label("Run until step number").fill(str(last + 3))
    book.page.keyboard.press("Enter")
    book.wait_step(last + 3)
    book.live.get_by_label("Run until", exact=True).select_option("finish")
    book.button("Run until").click()
    book.wait_note("finished")
    assert book.ask("[e.kind for e in w.trace.events if e.step == len(w.trace.steps) - 1].count('finish')") >= 1


def test_add_abort_and_reset(opened):
    book = opened(*ONE)
    book.live.get_by_label("Prompt", exact=True).focus()
    book.page.keyboard.type("The fox said")
    book.page.keyboard.press("Enter")
    book.row(3).wait_for()
    book.wait_note("Added sequence 3.")
    assert book.live.get_by_label("Prompt", exact=True).input_value() == ""
    book.row(3).click()
    said = book.live.locator(".ni-live-text")
    book.live.locator(".ni-live-text", has_text="The fox said").wait_for()
    book.button("Run").click()
    book.wait_note("Idle")
    text = book.ask("next(o['text'] for o in w.trace.outputs if o['request_id'] == 3)")
    assert text
    assert said.evaluate("e => e.textContent") == "The fox said" + text

    book.button("Reset").click()
    book.row(4).wait_for()
    assert book.newest() == -1
    assert book.live.locator(".ni-live-seq").count() == 3
    assert book.ask("(len(w.trace.steps), len(w.trace.header.initial.hash_index))") == (0, 0)
    book.button("Step").click()
    book.wait_step(0)
    book.row(5).click()
    book.button("Abort sequence 5").click()
    book.wait_note("Aborted sequence 5")
    assert "aborted" in book.row(5).inner_text()
    book.button("Step").click()
    book.wait_step(1)
    assert book.ask("5 in llm.scheduler.sequences") is False


def test_a_refused_request_is_told_and_changes_nothing(opened):
    book = opened(*ONE)
    book.button("Add request").click()
    book.wait_note("empty")
    book.live.get_by_label("Prompt", exact=True).fill("word " * 200)
    book.button("Add request").click()
    book.wait_note("block")
    note = book.live.locator(".ni-live-note")
    assert (note.get_attribute("role"), note.get_attribute("aria-live")) == ("status", "polite")
    assert len(book.live.get_by_label("Prompt", exact=True).input_value()) == 1000, "it can be corrected"
    assert book.ask("len(llm.scheduler.sequences)") == 3
    book.button("Step").click()
    book.wait_step(0)


def test_stop_abort_and_other_cells_work_while_it_runs(opened):
    book = opened(*SLOW)
    book.button("Run").click()
    book.live.locator(f"{SLIDER}:not([max='0'])").wait_for()
    assert book.ask("w.running")
    book.row(1).click()
    book.button("Abort sequence 1").click()
    book.wait_note("Aborted sequence 1")
    assert book.ask("w.running")
    book.live.get_by_label("Prompt", exact=True).fill("Another")
    book.page.keyboard.press("Enter")
    book.row(3).wait_for()
    before = book.newest()
    book.page.wait_for_function(f"() => Number(document.querySelector('.ni-slider').max) > {before}")
    assert book.button("Step").get_attribute("aria-disabled") == "true"
    book.button("Stop").click()
    book.wait_note("Stopped after step")
    steps = book.ask("len(w.trace.steps)")
    book.wait_step(steps - 1)
    assert book.ask("(w.running, len(w.trace.steps))") == (False, steps)


def test_an_interrupt_ends_a_run_and_leaves_both_usable(opened):
    book = opened(*SLOW)
    book.button("Run").click()
    book.live.locator(f"{SLIDER}:not([max='0'])").wait_for()
    for _ in range(20):  # one that falls between two steps is ignored by the kernel
        book.interrupt()
        book.page.wait_for_timeout(150)
        if not book.ask("w.running"):
            break
    book.wait_note("Interrupted")
    steps = book.ask("len(w.trace.steps)")
    book.wait_step(steps - 1)
    book.button("Step").click()
    book.wait_step(steps)
    book.button("Run").click()
    book.page.wait_for_function(f"() => Number(document.querySelector('.ni-slider').max) > {steps + 3}")
    book.button("Stop").click()
    book.wait_note("Stopped")
    assert book.ask("w.trace.state(-1).running == [s.seq_id for s in llm.scheduler.running]")


def test_a_trace_that_is_sent_again_keeps_the_reader_at_the_newest_step(opened):
    """An interrupt that hits the packing of a step makes the whole trace come again."""
    book = opened(*ONE)
    for step in range(3):
        book.button("Step").click()
        book.wait_step(step)
    book.page.wait_for_timeout(400)  # the view has told the kernel where it stands
    book.ask("None", "w._feed._packer = None")
    book.button("Step").click()
    book.wait_step(3)


def test_candidates_show_with_their_probabilities(opened):
    book = opened(*ONE)
    book.row(0).click()
    book.live.locator(".ni-live-small", has_text="No step has run yet").wait_for()
    book.button("Step").click()
    book.wait_step(0)
    book.live.locator(".ni-live-candidates li").first.wait_for()
    shown = book.live.locator(".ni-live-candidates li").all_inner_texts()
    expected = book.ask("[(c['text'], c['probability']) for c in llm.top_candidates(0, 8)]")
    assert len(shown) == len(expected) == 8
    for line, (text, probability) in zip(shown, expected, strict=True):
        assert f"{100 * probability:.1f} %" in line
        assert text.strip() in line
    assert [("sampled" in line) for line in shown].count(True) == 1, "greedy takes the first"
    assert "sampled" in shown[0]
    book.row(2).click()
    book.live.locator(".ni-live-small", has_text="was not computed").wait_for()
    assert book.live.locator(".ni-live-candidates li").count() == 0


def test_two_live_explorers_on_a_page(opened):
    book = opened("a, b = engine(), engine()\nwa = show(a)\nwa", "wb = show(b)\nwb")
    book.live.nth(1).locator(".ni-live-seq").first.wait_for()
    first, second = book.live.nth(0), book.live.nth(1)
    book.button("Step", first).click()
    book.wait_step(0, first)
    book.button("Step", first).click()
    book.wait_step(1, first)
    book.button("Step", second).click()
    book.wait_step(0, second)
    assert book.ask("(len(wa.trace.steps), len(wb.trace.steps))") == (2, 1)
    assert (book.newest(first), book.newest(second)) == (1, 0)


def test_a_cell_run_three_times_leaves_one_set_of_handlers(opened):
    """B93."""
    book = opened(*ONE)
    book.ask("0", "first = w")
    for _ in range(2):
        book.run_cell(2)
    book.page.wait_for_function("() => document.querySelectorAll('.ni-live[data-ready]').length === 1")
    assert book.ask("[len(w._sequences.alive()), len(llm.scheduler.sequences)]") == [3, 3]
    book.button("Step").click()
    book.wait_step(0)
    book.page.wait_for_timeout(300)
    assert book.ask("(len(w.trace.steps), len(first.trace.steps))") == (1, 0)
    assert "closed" in book.ask("repr(first)")
    assert book.live.locator(SLIDER).count() == 1


def test_hostile_prompts_stay_text(opened):
    book = opened("llm = engine(num_kvcache_blocks=64)", f"w = show(llm, [{EVIL!r}])\nw")
    book.row(0).click()
    book.button("Step").click()
    book.wait_step(0)
    book.live.locator(".ni-live-text", has_text="onerror").wait_for()
    assert book.live.locator(".ni-live-text").inner_text().startswith(EVIL)
    assert EVIL[:20] in book.row(0).inner_text()
    assert book.live.locator("img").count() == 0
    assert "owned" not in book.page.title()


def test_everything_that_takes_the_focus_has_a_name_and_keeps_its_keys(opened):
    book = opened(*ONE)
    book.button("Step").click()
    book.wait_step(0)
    missing = book.page.evaluate(
        """() => [...document.querySelectorAll('.ni button, .ni input, .ni select, .ni summary, .ni [tabindex]')]
            .filter(e => e.dataset.lmSuppressShortcuts !== 'true'
                || !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.[0]?.textContent))
            .map(e => e.outerHTML)"""
    )
    assert missing == []
    book.live.get_by_label("Prompt", exact=True).focus()
    book.page.keyboard.type("a b")  # no shortcut of JupyterLab's
    assert book.live.get_by_label("Prompt", exact=True).input_value() == "a b"
    book.row(0).focus()
    book.page.keyboard.press("ArrowDown")
    book.page.keyboard.press(" ")
    book.live.locator(".ni-head h3", has_text="Sequence 1: text so far").wait_for()


def test_a_page_opened_again_shows_all_that_happened(opened):
    book = opened(*ONE)
    for step in range(3):
        book.button("Step").click()
        book.wait_step(step)
    book.page.evaluate("() => jupyterapp.commands.execute('notebook:create-output-view')")
    book.page.wait_for_function("() => document.querySelectorAll('.ni-live[data-ready]').length === 2")
    assert [book.newest(book.live.nth(i)) for i in (0, 1)] == [2, 2]
    book.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    book.page.reload()
    book.page.wait_for_selector(".ni-live[data-ready]", timeout=60_000)
    book.wait_step(2, book.live.first)
    book.button("Step", book.live.first).click()
    book.wait_step(3, book.live.first)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_screenshots(opened, server, theme, tmp_path, tmp_path_factory):
    pictures = Path(os.environ.get("SCREENSHOTS", tmp_path))
    root = tmp_path_factory.mktemp("shots")
    with jupyter_lab(root, tmp_path_factory.mktemp("home"), dark=theme == "dark") as base:
        book = opened(*ONE, base=base, root=root)
        assert book.live.get_attribute("data-theme") == theme
        book.page.screenshot(path=pictures / f"live-{theme}-start.png")
        book.row(1).click()
        book.live.get_by_label("Run until", exact=True).select_option("preemption")
        book.button("Run until").click()
        book.wait_note("preempted")
        book.wait_step(book.ask("len(w.trace.steps)") - 1)
        book.page.wait_for_timeout(300)
        book.live.screenshot(path=pictures / f"live-{theme}-preempted.png")
        book.button("Run").click()
        book.wait_note("Idle")
        book.page.wait_for_timeout(300)
        book.live.screenshot(path=pictures / f"live-{theme}-end.png")
        book.button("Add request").click()
        book.wait_note("empty")
        book.page.set_viewport_size({"width": 760, "height": 1500})
        book.page.wait_for_timeout(500)
        book.live.screenshot(path=pictures / f"live-{theme}-narrow.png")
        assert crowded(book.live) == [], "as wide as a cell of a 1520 px window at 200 %"
        book.page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.shutdown()")
