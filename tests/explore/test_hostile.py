"""Texts that are not harmless, runs that are not usual, and a reader without a mouse or without eyes."""

import re
import unicodedata

import pytest
from kit.helpers import limits, params, prompt
from kit.lab import crowded
from playwright.sync_api import expect

from nanoinfer import compare, simulate
from nanoinfer.explore.comparison import ComparisonPage as explore_comparison
from nanoinfer.explore.shell import Exploration as explore

pytestmark = pytest.mark.browser

SLIDER = "input[type=range]"
TEXTS = {
    "markup": "<img src=x onerror=alert(1)>",
    "end of script": "</script><script>alert(1)</script><!-- ]]> &lt;b&gt; ${alert(1)} `",
    "one long token": "w" * 10_000,
    "spaces": " " * 5_000 + "x",
    "lines": "\n".join("line" for _ in range(2_000)),
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd, \u0645\u0631\u062d\u0628\u0627 123 abc!",
    "turned around": "a\u202eb\u2066c",
    "emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308" * 20,
    "accents": "Z" + "\u0351\u0343\u0306" * 200,
    "control characters": "a\0b\x1b[31mc\x07\ufeff\u2028\u2029d",
}


@pytest.fixture
def quiet_page(open_page):
    """A page that fails the test if anything opens a dialog."""
    dialogs = []

    def quiet_page(html, **options):
        page = open_page(html, **options)
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return page

    yield quiet_page
    assert dialogs == []


def fits(page):
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert crowded(page.locator(".ni")) == []


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_shown_as_it_is(quiet_page, name):
    text = TEXTS[name]
    trace = simulate([prompt(5), prompt(4, 1)], params(3), **limits(4, 16))
    trace.requests[0].prompt = text
    trace.outputs[0]["text"] = text
    page = quiet_page(explore(trace, select=0, tour=[(0, 0, text)]).page())
    for place in (page.locator(".ni-text").nth(0), page.locator(".ni-text").nth(1), page.locator(".ni-caption")):
        assert place.evaluate("e => e.textContent") == text
        assert place.evaluate("e => e.childElementCount") == 0
        assert place.bounding_box()["height"] < 160
    written = {unicodedata.bidirectional(c) for c in text}
    direction = "rtl" if written & {"R", "AL"} else "ltr"
    assert page.locator(".ni-text").first.evaluate("e => e.matches(':dir(rtl)') ? 'rtl' : 'ltr'") == direction
    assert page.locator(".ni img, .ni script").count() == 0
    fits(page)
    bundle = explore(trace, select=0)._repr_mimebundle_()
    assert "alert(1)" not in bundle["text/plain"]


UNUSUAL = {
    "no step": lambda: simulate([]),
    "one step": lambda: simulate([prompt(2)], params(1), **limits(4, 8)),
    "one block": lambda: simulate([prompt(2)], params(2), **limits(4, 1)),
    "one token a step": lambda: simulate([prompt(9)], params(2), **limits(1, 16, 1)),
    "512 sequences": lambda: simulate([prompt(20, i) for i in range(512)], params(4), **limits(4, 4096, 4096, 512)),
    "far apart": lambda: simulate([prompt(2), prompt(2, 1)], params(2), arrivals=[0, 10**9], **limits(4, 8)),
}


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("width", [1100, 360])
def test_an_unusual_run_is_shown(quiet_page, name, width):
    trace = UNUSUAL[name]()
    bundle = explore(trace)._repr_mimebundle_()
    assert bundle["text/plain"] in (explore(trace).text, "A trace without steps.")
    if not trace.steps:
        page = quiet_page(explore(trace).page(), ready=False, width=width)
        assert page.locator(".ni-note").inner_text() == "This trace has no steps."
        return
    page = quiet_page(explore(trace).page(), width=width)
    for step in {0, len(trace.steps) // 2, len(trace.steps) - 1}:
        page.locator(SLIDER).evaluate("(s, v) => { s.value = v; s.dispatchEvent(new Event('input')); }", step)
        page.locator(f"{SLIDER}[aria-valuetext^='Step {step} (']").wait_for()
        assert page.locator(".ni-sentences p").all_inner_texts() == trace.explain(step).split("\n")
        fits(page)
    page.locator(".ni-scroller").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Selected sequence")).to_have_value("0")


def test_a_batch_of_hundreds_leaves_room_for_the_reason(quiet_page):
    trace = UNUSUAL["512 sequences"]()
    step = next(s.index for s in trace.steps if s.stop.reason != "QUEUE_EMPTY")
    page = quiet_page(explore(trace, step=step).page())
    reason = page.locator(".ni-sentences p", has_text="Admission stopped").bounding_box()
    area = page.locator(".ni-sentences").bounding_box()
    assert reason["y"] + reason["height"] <= area["y"] + area["height"]


UNLIKE = {
    "blocks": ([prompt(2)], limits(4, 1), limits(4, 1024)),
    "steps": ([prompt(60)], limits(1, 64, 1), limits(4, 16, 64)),
    "batches": ([prompt(20, i) for i in range(512)], limits(4, 4096, 4096, 512), limits(4, 64, 64, 2)),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_unlike_runs_are_compared(quiet_page, name):
    prompts, first, second = UNLIKE[name]
    comparison = explore_comparison(
        compare(*(simulate(prompts, params(2), **settings) for settings in (first, second)))
    )
    assert set(comparison._repr_mimebundle_()) == {"text/html", "image/png", "text/plain"}
    page = quiet_page(comparison.page(), width=1300)
    fits(page)
    page.locator(SLIDER).press("End")
    page.locator(".ni-side-why", has_text="ended").first.wait_for()
    fits(page)


# ---- without a mouse ------------------------------------------------------------------------------------


def test_the_keyboard_alone_does_everything(pressed, open_page):
    page = open_page(explore(pressed, tour=[(0, None, "Start"), (21, 3, "Here")]).page())
    name = "() => document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"

    def tab_to(label):
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate(name).startswith(label):
                return
        raise AssertionError(f"Tab does not lead to {label}")

    def at(step):
        page.locator(f"{SLIDER}[aria-valuetext^='Step {step} (']").wait_for()

    tab_to("Next step")
    page.keyboard.press("Enter")
    at(1)
    tab_to("preemption")
    page.keyboard.press("Enter")
    at(next(step.index for step in pressed.steps if step.preempted))
    tab_to("Show as table")
    page.keyboard.press(" ")
    page.locator(".ni-step-table").wait_for()
    tab_to("Next")
    page.keyboard.press("Enter")
    at(21)
    expect(page.get_by_label("Selected sequence")).to_have_value("3")
    tab_to("Order of the rows")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.value") == "finish"
    tab_to("Zoom in")
    page.keyboard.press(" ")
    tab_to("Timeline.")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Selected sequence")).not_to_have_value("3")
    tab_to("Selected sequence")
    page.keyboard.type("6")
    page.keyboard.press("Enter")
    page.locator(".ni-chips [aria-current=true][data-seq='6']").first.wait_for(state="attached")
    tab_to("Keys")
    page.keyboard.press("Enter")
    page.get_by_text("previous, next preemption").wait_for()


# ---- read aloud -----------------------------------------------------------------------------------------


def test_what_a_screen_reader_is_given(pressed, open_page):
    step = next(step.index for step in pressed.steps if step.preempted)
    victim = pressed.steps[step].preempted[0].victim
    page = open_page(explore(pressed, step=step, select=pressed.state(step).running[0]).page())
    spoken = page.locator(".ni").aria_snapshot()
    nameless = re.findall(
        r"^\s*- (?:button|slider|combobox|checkbox|spinbutton|img|region|group)(?:$|:| \[)", spoken, re.M
    )
    assert [line for line in nameless if "group: Keys" not in line and line.strip() != "- group:"] == []
    for words in (
        'slider "Engine step"',
        'combobox "Order of the rows"',
        'group "Move through the steps"',
        'group "Block table"',
        'group "waiting before the step"',
        'group "running after the step"',
        'spinbutton "Selected sequence"',
    ):
        assert words in spoken, words
    state = pressed.state(step)
    used = sum(count > 0 for count in state.ref_counts)
    assert f"KV blocks after step {step}: {used} used" in spoken
    for sentence in pressed.explain(step).split("\n"):
        assert sentence in spoken
    assert "(preempted)" in page.get_by_label("running before the step").inner_text()
    chip = page.get_by_label("running before the step").locator(f"[data-seq='{victim}']")
    assert "preempted" in chip.text_content()
    assert page.locator(SLIDER).get_attribute("aria-valuetext") in pressed.explain(step)
    (live,) = page.locator("[role=status], [aria-live=polite]:not(.ni-caption)").all()
    assert live.get_attribute("aria-live") == "polite"
    assert page.locator("output").get_attribute("aria-live") == "off"
