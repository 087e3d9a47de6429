"""The comparison in Chromium, from a file: both sides move, and say what their traces say."""

import random

import pytest
from kit.helpers import limits, params, prompt
from kit.lab import crowded

from nanoinfer import SamplingParams, compare, simulate
from nanoinfer.explore.comparison import ComparisonPage as explore_comparison
from nanoinfer.explore.comparison_words import difference_text, metrics_rows

pytestmark = pytest.mark.browser

SLIDER = "input[type=range]"
PICTURES = (".ni-strip", ".ni-rows", ".ni-blocks")


def costs(plan):
    return 0.002 + 0.0004 * sum(row.num_scheduled for row in plan.rows)


def busy(policy, blocks=15):
    """Hits, chunks, refusals and preemptions, with a clock of seconds; the policies part after some steps."""
    rng = random.Random(3)
    prefix = list(range(100, 109))
    prompts, sampling = [], []
    for i in range(12):
        own = [1000 + 50 * i + j for j in range(rng.randint(3, 16))]
        prompts.append(own if i % 3 == 1 else prefix + own)
        sampling.append(SamplingParams(max_tokens=rng.randint(6, 18)))
    arrivals = [t / 100 for t in (0, 2, 4, 5, 5, 6, 10, 14, 15, 22, 24, 30)]
    settings = {"kvcache_block_size": 4, "num_kvcache_blocks": blocks, "max_num_batched_tokens": 16}
    return simulate(prompts, sampling, arrivals=arrivals, cost_model=costs, policy=policy, **settings)


@pytest.fixture(scope="module")
def two():
    return compare(busy("prefill_first"), busy("mixed"))


@pytest.fixture(scope="module")
def uneven():
    """The second side has fewer steps: it computes whole prompts where the first one needs chunks."""
    prompts = [prompt(30, i) for i in range(3)]
    a, b = (simulate(prompts, params(5), **limits(4, 60, budget)) for budget in (4, 64))
    assert len(a.steps) > len(b.steps) + 4
    return compare(a, b)


def traces_of(comparison):
    return comparison.trace_a, comparison.trace_b


def page_of(comparison, **options):
    return explore_comparison(comparison, **options).page()


def settle(page):
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)
    settle(page)


def go(page, position):
    page.locator(SLIDER).evaluate("(s, v) => { s.value = v; s.dispatchEvent(new Event('input')); }", position)
    settle(page)


def click(page, name):
    page.get_by_role("button", name=name).click()
    settle(page)


def told(page, side):
    """The sentences of a side, or the note that stands in their place."""
    cell = page.locator(f".ni-side-why[data-side={side}]")
    if cell.locator(".ni-note").is_visible():
        return [cell.locator(".ni-note").inner_text()]
    return cell.locator(".ni-sentences p").all_inner_texts()


def stands(page, side):
    """The step in a side's heading."""
    words = page.locator(f".ni-head[data-side={side}] .ni-muted").inner_text().split()
    return int(words[1])


def pixels(page, selector, side):
    script = """([selector, side]) => {
        const canvas = document.querySelector(`.ni-pair > [data-side=${side}] ${selector}`);
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let hash = 0;
        for (let i = 0; i < data.length; i += 1) hash = (hash * 31 + data[i]) | 0;
        return hash;
    }"""
    return page.evaluate(script, [selector, side])


# ---- the same step ------------------------------------------------------------------------------------


def test_both_sides_say_what_explain_says_at_every_step(two, open_page):
    page = open_page(page_of(two))
    for i in range(max(len(trace.steps) for trace in traces_of(two))):
        go(page, i)
        for side, trace in zip("ab", traces_of(two), strict=True):
            ended = [f"Has ended: its last step was {len(trace.steps) - 1}."]
            assert told(page, side) == (trace.explain(i).split("\n") if i < len(trace.steps) else ended), (side, i)


def test_one_key_repaints_all_pictures_of_both_sides(two, open_page):
    page = open_page(page_of(two))
    page.locator(SLIDER).focus()
    press(page, "PageUp")
    before = {(picture, side): pixels(page, picture, side) for picture in PICTURES for side in "ab"}
    press(page, "ArrowRight")
    assert stands(page, "a") == stands(page, "b") == 11
    assert not [key for key, old in before.items() if pixels(page, *key) == old]
    press(page, "ArrowLeft")
    assert {key: pixels(page, *key) for key in before} == before


def test_blocks_and_queues_are_those_of_each_trace(two, open_page):
    page = open_page(page_of(two))
    for i in (3, 20, 31, 12):
        go(page, i)
        for n, trace in enumerate(traces_of(two)):
            state = trace.state(i)
            used = sum(count > 0 for count in state.ref_counts)
            assert f"{used} used" in page.locator(".ni-blocks").nth(n).get_attribute("aria-label")
            queues = page.locator(".ni-panel[data-side]:has(.ni-queue)").nth(n).locator(".ni-chips").all()[1::2]
            ids = [[int(c.get_attribute("data-seq")) for c in q.locator("[data-seq]").all()] for q in queues]
            assert ids == [state.waiting, state.running]


def test_the_shorter_side_has_ended(uneven, open_page):
    a, b = traces_of(uneven)
    page = open_page(page_of(uneven))
    page.locator(SLIDER).focus()
    assert page.locator(SLIDER).get_attribute("max") == str(len(a.steps) - 1)
    go(page, len(b.steps) - 1)
    assert told(page, "b") == b.explain(-1).split("\n")
    last = pixels(page, ".ni-blocks", "b")
    press(page, "ArrowRight")
    assert told(page, "a") == a.explain(len(b.steps)).split("\n")
    assert told(page, "b") == [f"Has ended: its last step was {len(b.steps) - 1}."]
    assert f"b: has ended: its last step was {len(b.steps) - 1}." in page.locator(SLIDER).get_attribute(
        "aria-valuetext"
    )
    assert pixels(page, ".ni-blocks", "b") == last
    press(page, "End")
    assert (stands(page, "a"), stands(page, "b")) == (len(a.steps) - 1, len(b.steps) - 1)


def test_both_timelines_have_one_scale(uneven, open_page):
    """A click at the same place goes to the same step on either side, and beyond the shorter one's end to its last."""
    a, b = traces_of(uneven)
    page = open_page(page_of(uneven), width=1300)
    target = len(b.steps) - 2
    for side in (0, 1):
        go(page, 0)
        box = page.locator(".ni-rows").nth(side).bounding_box()
        x = 62 + (box["width"] - 62 - 14) * (target + 0.5) / len(a.steps)
        page.mouse.click(box["x"] + x, box["y"] + 10)
        settle(page)
        assert (stands(page, "a"), stands(page, "b")) == (target, target), side
    box = page.locator(".ni-rows").nth(1).bounding_box()
    page.mouse.click(box["x"] + box["width"] - 20, box["y"] + 10)
    settle(page)
    assert stands(page, "b") == len(b.steps) - 1


def test_zoom_is_shared(two, open_page):
    page = open_page(page_of(two))
    before = [pixels(page, ".ni-rows", side) for side in "ab"]
    click(page, "Zoom in")
    assert all(pixels(page, ".ni-rows", side) != old for side, old in zip("ab", before, strict=True))
    page.locator(SLIDER).focus()
    press(page, "0")
    assert [pixels(page, ".ni-rows", side) for side in "ab"] == before


def test_a_side_that_has_ended_keeps_the_zoom_window_of_the_other(uneven, open_page):
    a, b = traces_of(uneven)
    page = open_page(page_of(uneven), width=1300)
    page.locator(SLIDER).focus()
    press(page, "+", "+", "+", "End")
    assert len(a.steps) - 8 > len(b.steps), "the window, eight steps wide, lies behind the end"
    box = page.locator(".ni-rows").nth(1).bounding_box()
    page.mouse.click(box["x"] + 64, box["y"] + 10)
    settle(page)
    assert stands(page, "b") == len(b.steps) - 1


# ---- the same time -----------------------------------------------------------------------------------------


def test_at_the_same_time_each_side_shows_its_last_step_that_had_started(two, open_page):
    page = open_page(page_of(two))
    click(page, "same time")
    times = sorted({step.clock for trace in traces_of(two) for step in trace.steps})
    assert page.locator(SLIDER).get_attribute("max") == str(len(times) - 1)
    parted = 0
    for position in range(0, len(times), 3):
        go(page, position)
        steps = [max(s.index for s in trace.steps if s.clock <= times[position]) for trace in traces_of(two)]
        assert [stands(page, side) for side in "ab"] == steps, position
        parted += steps[0] != steps[1]
        for side, trace, i in zip("ab", traces_of(two), steps, strict=True):
            end = trace.steps[-1].clock + trace.steps[-1].timing["duration"]
            if times[position] < end:
                assert told(page, side) == trace.explain(i).split("\n")
            else:
                assert told(page, side)[0].startswith("Has ended")
    assert parted > 5
    assert " s / " in page.locator(".ni-output").inner_text() or " ms / " in page.locator(".ni-output").inner_text()


def test_a_change_of_the_lock_keeps_the_step(two, open_page):
    page = open_page(page_of(two))
    go(page, 25)
    click(page, "same time")
    assert stands(page, "a") == 25
    assert page.get_by_role("button", name="same time").get_attribute("aria-pressed") == "true"
    click(page, "same step")
    assert stands(page, "a") == stands(page, "b") == 25
    assert page.get_by_role("button", name="same time").get_attribute("aria-pressed") == "false"


def test_at_the_same_time_a_click_on_a_side_leads_the_other(two, open_page):
    page = open_page(page_of(two), width=1300)
    click(page, "same time")
    box = page.locator(".ni-rows").nth(1).bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
    settle(page)
    a, b = traces_of(two)
    clock = b.steps[stands(page, "b")].clock
    assert stands(page, "b") > 10
    assert stands(page, "a") == max(step.index for step in a.steps if step.clock <= clock)


def test_a_side_that_starts_later_says_so(open_page):
    a, b = busy("prefill_first"), busy("mixed")
    for step in b.steps:
        step.clock += 0.02
    page = open_page(page_of(compare(a, b)))
    click(page, "same time")
    assert told(page, "b") == ["Has not started yet."]
    press(page, "End")
    go(page, 30)
    assert "not started" not in told(page, "b")[0]


def test_clocks_of_two_kinds_cannot_be_locked(two, open_page):
    a = two.trace_a
    steps = simulate(
        [r.prompt_token_ids for r in a.requests.values()], params(3), **limits(4, 24, 16)
    )  # its clock counts steps
    page = open_page(page_of(compare(a, steps)))
    button = page.get_by_role("button", name="same time")
    assert button.get_attribute("aria-disabled") == "true"
    assert "different things" in button.get_attribute("title")
    button.click(force=True)
    settle(page)
    assert page.get_by_role("button", name="same step").get_attribute("aria-pressed") == "true"


# ---- the first difference -------------------------------------------------------------------------------------


def test_the_button_goes_to_the_first_difference(two, open_page):
    i = two.first_difference
    assert i > 0
    page = open_page(page_of(two))
    assert page.locator(".ni-difference").inner_text() == difference_text(two)
    click(page, f"First difference (step {i})")
    assert stands(page, "a") == stands(page, "b") == i
    for side, trace in zip("ab", traces_of(two), strict=True):
        assert told(page, side) == trace.explain(i).split("\n")
    page.locator(SLIDER).focus()
    press(page, "Home", "d")
    assert stands(page, "a") == stands(page, "b") == i


def test_the_first_difference_is_marked_in_both_timelines(two, open_page):
    """The same page without the difference has other pixels only around where that step begins."""
    script = """side => ['.ni-strip', '.ni-rows'].map(selector => {
        const canvas = document.querySelector(`.ni-pair > [data-side=${side}] ${selector}`);
        return Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data);
    })"""
    page, plain = (
        open_page(page_of(two)),
        open_page(page_of(two).replace(f'"frame":{two.first_difference},', '"frame":null,')),
    )
    frames = max(len(trace.steps) for trace in traces_of(two))
    for side in "ab":
        width = page.locator(f"[data-side={side}] .ni-rows").evaluate("c => c.width")
        for marked, bare in zip(page.evaluate(script, side), plain.evaluate(script, side), strict=True):
            columns = {n // 4 % width for n, (x, y) in enumerate(zip(marked, bare, strict=True)) if x != y}
            expected = 62 + (width - 62 - 14) * two.first_difference / frames
            assert columns
            assert min(columns) >= expected - 2
            assert max(columns) <= expected + 9


def test_equal_runs_have_no_difference_to_go_to(open_page):
    same = compare(busy("mixed"), busy("mixed"))
    page = open_page(page_of(same))
    button = page.get_by_role("button", name="No difference")
    assert button.get_attribute("aria-disabled") == "true"
    go(page, 7)
    button.click(force=True)
    settle(page)
    assert stands(page, "a") == 7
    assert page.locator(".ni-difference").inner_text() == same.what


# ---- what both share ------------------------------------------------------------------------------------------


def test_a_sequence_is_selected_on_both_sides(two, open_page):
    page = open_page(page_of(two), width=1300)
    go(page, 20)
    box = page.locator(".ni-rows").nth(1).bounding_box()
    page.mouse.click(box["x"] + 300, box["y"] + box["height"] / 12 * 2.5)
    settle(page)
    assert page.get_by_label("Selected sequence").count() == 1
    assert page.get_by_label("Selected sequence").input_value() == "2"
    i = stands(page, "a")
    for n, trace in enumerate(traces_of(two)):
        panel = page.locator(".ni-panel[data-side]:has(.ni-facts)").nth(n)
        blocks = [int(t.split("\u2192")[1].split("\u00d7")[0]) for t in panel.locator(".ni-entry b").all_inner_texts()]
        assert blocks == trace.state(i).block_tables.get(2, [])
    page.locator(SLIDER).focus()
    press(page, "Escape")
    assert page.get_by_label("Selected sequence").input_value() == ""


def test_a_sequence_that_only_one_side_has_is_selected_there(open_page):
    a, b = busy("prefill_first"), busy("mixed")
    cut = next(step.index for step in b.steps if 11 in step.running or 11 in step.waiting)
    b.steps = b.steps[: cut - 1]
    b.events = [event for event in b.events if event.step < cut - 1]
    page = open_page(page_of(compare(a, b)))
    page.get_by_label("Selected sequence").fill("11")
    press(page, "Enter")
    facts = page.locator(".ni-facts").all_inner_texts()
    assert "Prompt of" in facts[0]
    assert facts[1] == "There is no sequence 11 in this trace."


def test_rows_are_sorted_and_the_step_tabled_on_both_sides(two, open_page):
    page = open_page(page_of(two))
    go(page, 12)
    before = [pixels(page, ".ni-rows", side) for side in "ab"]
    page.get_by_label("Order of the rows").select_option("preemptions")
    settle(page)
    assert [pixels(page, ".ni-rows", side) for side in "ab"] != before
    click(page, "Show as table")
    for n, trace in enumerate(traces_of(two)):
        ids = page.locator(".ni-step-table").nth(n).locator("tbody th").all_inner_texts()
        assert sorted(map(int, ids)) == sorted(row.seq_id for row in trace.steps[12].rows)


def test_jumps_visit_what_happens_on_either_side(two, open_page):
    page = open_page(page_of(two))
    steps = sorted({s.index for trace in traces_of(two) for s in trace.steps if s.preempted})
    page.locator(SLIDER).focus()
    assert len(steps) > 4
    visited = []
    for _ in steps:
        press(page, "]")
        visited.append(int(page.locator(SLIDER).input_value()))
    assert visited == steps
    assert page.get_by_role("button", name=f"preemption ({len(steps)})").count() == 1


def test_playing_moves_both(two, open_page):
    page = open_page(page_of(two))
    page.get_by_label("Steps a second while playing").select_option("60")
    page.locator(SLIDER).focus()
    press(page, " ")
    page.wait_for_function(f"() => Number(document.querySelector('{SLIDER}').value) > 5")
    press(page, " ")
    assert stands(page, "a") == stands(page, "b") == int(page.locator(SLIDER).input_value())


# ---- metrics -----------------------------------------------------------------------------------------------------


def test_the_table_has_the_metrics_of_both(two, open_page):
    page = open_page(page_of(two))
    cells = lambda: [row.inner_text().split("\t") for row in page.locator(".ni-metrics tbody tr").all()]  # noqa: E731
    figures = metrics_rows(two)
    shown = [[f["name"], f["unit"], f["a"], f["b"], f["ratio"]] for f in figures if not f["more"]]
    assert cells() == shown
    click(page, f"All {len(figures)}")
    assert [row[0] for row in cells()] == list(two.metrics().index)
    heads = page.locator(".ni-metrics thead th").all_inner_texts()
    assert heads == ["figure", "unit", "a: policy prefill_first", "b: policy mixed", "b / a"]
    click(page, "Fewer")
    assert cells() == shown


# ---- themes, widths, focus --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "beside"), [(1300, True), (920, True), (880, False), (360, False)])
def test_sides_stand_beside_or_under_each_other_and_nothing_is_cut(two, open_page, width, beside):
    page = open_page(page_of(two), width=width)
    go(page, 20)
    for kind in (".ni-head", ".ni-side-why", ".ni-panel"):
        a, b = (page.locator(f".ni-pair > {kind}[data-side={side}]").first.bounding_box() for side in "ab")
        assert (a["y"] == b["y"]) == beside, kind
        assert (a["x"] == b["x"]) != beside, kind
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("width", [1280, 700, 320])
def test_at_twice_the_size_no_control_is_cut_or_covered(two, open_page, width):
    page = open_page(page_of(two), width=width, height=400, device_scale_factor=2)
    go(page, 20)
    page.get_by_label("Selected sequence").fill("3")
    page.keyboard.press("Enter")
    click(page, "Show as table")
    assert crowded(page.locator(".ni")) == []


def test_every_panel_says_whose_it_is(two, open_page):
    page = open_page(page_of(two), width=800)
    for cell in page.locator(".ni-pair > :is(.ni-panel, .ni-side-why)").all():
        assert cell.locator(".ni-side").all_inner_texts() == [cell.get_attribute("data-side")]


def test_the_theme_follows_the_system_and_switches_live(two, open_page):
    page = open_page(page_of(two), color_scheme="dark")
    assert page.locator(".ni").get_attribute("data-theme") == "dark"
    dark = [pixels(page, picture, side) for picture in PICTURES for side in "ab"]
    page.emulate_media(color_scheme="light")
    page.wait_for_selector(".ni[data-theme=light]")
    settle(page)
    light = [pixels(page, picture, side) for picture in PICTURES for side in "ab"]
    assert all(x != y for x, y in zip(dark, light, strict=True))
    asked = open_page(page_of(two, theme="dark"), color_scheme="light")
    assert asked.locator(".ni").get_attribute("data-theme") == "dark"


def test_everything_that_takes_the_focus_has_a_name_and_keeps_its_keys(two, open_page):
    page = open_page(page_of(two))
    missing = page.evaluate(
        """() => [...document.querySelectorAll('.ni button, .ni input, .ni select, .ni summary, .ni [tabindex]')]
            .filter(e => e.dataset.lmSuppressShortcuts !== 'true'
                || !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.[0]?.textContent))
            .map(e => e.outerHTML)"""
    )
    assert missing == []
    assert page.locator("canvas[role=img][aria-label]").count() == 6
    (region,) = page.locator("[aria-live]:not(output)").all()
    go(page, 5)
    assert region.text_content() == "\n".join(
        f"{side}: {trace.explain(5)}" for side, trace in zip("ab", traces_of(two), strict=True)
    )


def test_a_notebook_shows_the_frame_in_the_posters_place(two, open_page):
    html = f"<!doctype html><body data-jp-theme-light='false'><div>{explore_comparison(two).html}</div>"
    page = open_page(html, ready=False)
    inside = page.frame_locator("iframe")
    inside.locator(".ni[data-ready][data-theme=dark]").wait_for()
    assert not page.locator("[data-ni-poster]").is_visible()
    inside.locator(SLIDER).focus()
    page.keyboard.press("ArrowRight")
    inside.locator(".ni-output", has_text="step 1 /").wait_for()


def test_traces_without_steps_say_so(open_page):
    page = open_page(page_of(compare(simulate([]), simulate([]))), ready=False)
    assert "without steps" in page.locator(".ni-note").inner_text()
