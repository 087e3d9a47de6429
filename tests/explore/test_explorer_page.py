"""The explorer in Chromium, from a file: what a learner does, and what must then be seen."""

import pytest
from kit.helpers import limits, params, prompt
from kit.lab import crowded

from nanoinfer import simulate
from nanoinfer.explore.pack import Packer
from nanoinfer.explore.page import live_module, module
from nanoinfer.explore.shell import Exploration as explore

pytestmark = pytest.mark.browser

SLIDER = "input[type=range]"
EVIL = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>"


def page_of(trace, **options):
    return explore(trace, **options).page()


def step_of(page, root="body"):
    return int(page.locator(root).locator(SLIDER).input_value())


def told(page, root="body"):
    return page.locator(root).locator(".ni-sentences p").all_inner_texts()


def pixels(page, selector):
    """A number that differs when the picture on a canvas does."""
    script = """selector => {
        const canvas = document.querySelector(selector);
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let hash = 0;
        for (let i = 0; i < data.length; i += 1) hash = (hash * 31 + data[i]) | 0;
        return hash;
    }"""
    return page.evaluate(script, selector)


def settle(page):
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def go(page, step):
    page.locator(SLIDER).evaluate("(s, v) => { s.value = v; s.dispatchEvent(new Event('input')); }", step)
    settle(page)


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)
    settle(page)


# ---- one slider moves everything ---------------------------------------------------------------


def test_the_page_says_what_explain_says_for_every_step(pressed, open_page):
    page = open_page(page_of(pressed))
    for i, step in enumerate(pressed.steps):
        go(page, i)
        assert told(page) == pressed.explain(i).split("\n"), f"step {i}"
        assert page.locator(".ni-stops code").all_inner_texts() == [str(step.stop), str(step.decode_stop)]
        assert page.locator(SLIDER).get_attribute("aria-valuetext").startswith(f"Step {i} (")


def test_blocks_and_queues_are_those_of_the_trace_at_every_step(pressed, open_page):
    page = open_page(page_of(pressed))
    for i in [*range(0, len(pressed.steps)), 3, 60, 17]:  # forward, and then back and forth
        if i >= len(pressed.steps):
            continue
        go(page, i)
        state = pressed.state(i)
        counts = state.ref_counts
        used, shared = sum(c > 0 for c in counts), sum(c > 1 for c in counts)
        assert f"{used} used, {shared} shared" in page.locator(".ni-blocks").get_attribute("aria-label")
        queues = page.locator(".ni-chips").all()
        assert [len(queue.locator("[data-seq]").all()) for queue in queues[1::2]] == [
            len(state.waiting),
            len(state.running),
        ]
        ids = [[int(c.get_attribute("data-seq")) for c in queue.locator("[data-seq]").all()] for queue in queues[1::2]]
        assert ids == [state.waiting, state.running]


def test_who_moves_is_marked_by_more_than_colour(pressed, open_page):
    step = next(step.index for step in pressed.steps if step.preempted)
    victim = pressed.steps[step].preempted[0].victim
    page = open_page(page_of(pressed, step=step))
    waiting_after, running_before = page.locator(".ni-chips").nth(1), page.locator(".ni-chips").nth(2)
    entered = waiting_after.locator(f"[data-seq='{victim}']")
    left = running_before.locator(f"[data-seq='{victim}']")
    assert "ni-enters" in entered.get_attribute("class")
    assert "preempted" in left.inner_text()
    line = left.locator("span").first.evaluate("e => getComputedStyle(e).textDecorationLine")
    assert line == "line-through"


def test_arrow_keys_repaint_all_pictures(pressed, open_page):
    page = open_page(page_of(pressed, step=5))
    pictures = (".ni-strip", ".ni-rows", ".ni-blocks")
    before = [pixels(page, picture) for picture in pictures]
    page.locator(SLIDER).focus()
    press(page, "ArrowRight")
    assert step_of(page) == 6
    assert all(pixels(page, picture) != old for picture, old in zip(pictures, before, strict=True))
    press(page, "ArrowLeft")
    assert [pixels(page, picture) for picture in pictures] == before, "going back shows the same"


def test_a_page_of_its_own_takes_keys_at_once(pressed, open_page):
    page = open_page(page_of(pressed))
    press(page, "ArrowRight")
    assert step_of(page) == 1


@pytest.mark.parametrize("part", [".ni-sentences", ".ni-legend", ".ni-strip", ".ni-blocks", ".ni-chips", "h3"])
def test_keys_work_after_a_click_on_any_part(pressed, open_page, part):
    page = open_page(page_of(pressed, step=5))
    page.evaluate("() => document.activeElement.blur()")
    page.locator(part).first.click()
    settle(page)
    before = step_of(page)
    press(page, "ArrowRight")
    assert step_of(page) == before + 1


def test_every_key_of_the_list_works(pressed, open_page):
    last = len(pressed.steps) - 1
    preemptions = [step.index for step in pressed.steps if step.preempted]
    page = open_page(page_of(pressed))
    page.locator(SLIDER).focus()
    for key, expected in [("End", last), ("PageDown", last - 10), ("PageUp", last), ("Home", 0), ("PageUp", 10)]:
        press(page, key)
        assert step_of(page) == expected, key
    press(page, "Home", "]")
    assert step_of(page) == preemptions[0]
    press(page, "]", "[")
    assert step_of(page) == preemptions[0]
    press(page, "End", "ArrowRight")
    assert step_of(page) == last, "no step after the last"


def test_play_runs_and_space_stops_it(pressed, open_page):
    page = open_page(page_of(pressed))
    page.get_by_label("Steps a second while playing").select_option("60")
    page.locator(SLIDER).focus()
    press(page, " ")
    page.wait_for_function(f"() => Number(document.querySelector('{SLIDER}').value) > 5")
    press(page, " ")
    stopped = step_of(page)
    page.wait_for_timeout(200)
    assert step_of(page) == stopped
    assert page.get_by_role("button", name="Play (Space)").count() == 1


def test_jump_buttons_go_to_the_next_mark(pressed, open_page):
    page = open_page(page_of(pressed))
    first = {
        "preemption": next(s.index for s in pressed.steps if s.preempted),
        "prefix hit": next(
            s.index for s in pressed.steps if any(r.num_cached and r.chunk and r.chunk[0] == 1 for r in s.rows)
        ),
        "refused admission": next(s.index for s in pressed.steps if s.index and s.stop.reason == "NO_BLOCKS"),
    }
    for name in ("preemption", "prefix hit"):
        press(page, "Home")
        go(page, 0)
        page.get_by_role("button", name=name).click()
        settle(page)
        assert step_of(page) == first[name], name
    go(page, first["refused admission"] - 1)
    page.get_by_role("button", name="refused admission").click()
    settle(page)
    assert step_of(page) == first["refused admission"]


# ---- one sequence everywhere ----------------------------------------------------------------------


def test_a_click_on_the_timeline_goes_there_and_selects(pressed, open_page):
    page = open_page(page_of(pressed))
    box = page.locator(".ni-rows").bounding_box()
    row = box["height"] / 12
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 2.5 * row)
    settle(page)
    assert page.get_by_label("Selected sequence").input_value() == "2"
    assert abs(step_of(page) - len(pressed.steps) / 2) < 4


def test_a_queue_entry_and_a_block_select_too(pressed, open_page):
    page = open_page(page_of(pressed, step=20))
    state = pressed.state(20)
    selected = page.get_by_label("Selected sequence")
    page.locator(".ni-chips").nth(3).locator("[data-seq]").first.click()
    settle(page)
    assert selected.input_value() == str(state.running[0])
    other = state.running[-1]
    block = next(b for b in state.block_tables[other] if state.ref_counts[b] == 1)
    box, left, columns = page.locator(".ni-blocks").bounding_box(), 22, 16  # of a pool of 24 blocks
    cell = min(40, (box["width"] - left - 1) / columns)
    page.mouse.click(box["x"] + left + (block % columns + 0.5) * cell, box["y"] + (block // columns + 0.5) * cell)
    settle(page)
    assert selected.input_value() == str(other)
    entries = page.locator(".ni-entry b").all_inner_texts()
    assert [int(text.split("\u2192")[1].split("\u00d7")[0]) for text in entries] == state.block_tables[other]


def test_the_keyboard_alone_selects_and_clears(pressed, open_page):
    page = open_page(page_of(pressed))
    page.locator(".ni-scroller").focus()
    press(page, "ArrowDown", "ArrowDown")
    assert page.get_by_label("Selected sequence").input_value() == "1"
    press(page, "Escape")
    assert page.get_by_label("Selected sequence").input_value() == ""
    page.get_by_label("Selected sequence").fill("4")
    press(page, "Enter")
    assert "Prompt of" in page.locator(".ni-facts").inner_text()
    page.get_by_label("Selected sequence").fill("99")
    press(page, "Enter")
    assert "no sequence 99" in page.locator(".ni-facts").inner_text()


def test_everything_that_takes_the_focus_has_a_name_and_keeps_its_keys(pressed, open_page):
    page = open_page(page_of(pressed, tour=[(1, None, "a"), (2, None, "b")]))
    missing = page.evaluate(
        """() => [...document.querySelectorAll('.ni button, .ni input, .ni select, .ni summary, .ni [tabindex]')]
            .filter(e => e.dataset.lmSuppressShortcuts !== 'true'
                || !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.[0]?.textContent))
            .map(e => e.outerHTML)"""
    )
    assert missing == []
    assert (
        page.locator("canvas:not([aria-hidden])").count() == page.locator("canvas[role=img][aria-label]").count() == 3
    )
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                "() => document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
            )
        )
    assert {"Engine step", "Play (Space)", "Selected sequence", "Keys", "Next"} <= seen
    outline = page.locator(SLIDER).evaluate(
        "e => { e.focus({focusVisible: true}); return getComputedStyle(e).outlineStyle; }"
    )
    assert outline == "solid"


def test_the_step_as_a_table_has_its_rows(pressed, open_page):
    step = next(s for s in pressed.steps if any(r.chunk and r.chunk[1] > 1 for r in s.rows))
    page = open_page(page_of(pressed, step=step.index))
    page.get_by_role("button", name="Show as table").click()
    settle(page)
    rows = [row.inner_text().split("\t") for row in page.locator(".ni-step-table tbody tr").all()]
    assert sorted(int(row[0]) for row in rows) == sorted(row.seq_id for row in step.rows)
    by_id = {int(row[0]): row for row in rows}
    for row in step.rows:
        cells = by_id[row.seq_id]
        sampled = "dropped" if row.token_id is None else str(row.token_id)
        assert cells[4] == sampled
        if row.chunk and row.chunk[1] > 1:
            assert f"chunk {row.chunk[0]} of {row.chunk[1]}" in cells[1]


def test_sorting_and_filtering_the_rows(pressed, open_page):
    page = open_page(page_of(pressed, step=3))
    before = pixels(page, ".ni-rows")
    page.get_by_label("Order of the rows").select_option("preemptions")
    settle(page)
    assert pixels(page, ".ni-rows") != before
    page.get_by_label("active at the cursor").check()
    settle(page)
    alive = {*pressed.state(3).waiting, *pressed.state(3).running}
    assert f"Timeline: {len(alive)} sequences" in page.locator(".ni-head h3").first.inner_text()


def test_zoom_keeps_the_cursor_in_view(pressed, open_page):
    page = open_page(page_of(pressed, step=10))
    whole = pixels(page, ".ni-rows")
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Zoom in").click()
    settle(page)
    near = pixels(page, ".ni-rows")
    assert near != whole
    page.locator(SLIDER).focus()
    press(page, "End")
    assert pixels(page, ".ni-rows") != near
    press(page, "0", "Home")
    go(page, 10)
    assert pixels(page, ".ni-rows") == whole
    box = page.locator(".ni-strip").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 20)
    page.mouse.wheel(0, -400)
    settle(page)
    assert pixels(page, ".ni-rows") != whole


def test_hovering_names_what_is_there(pressed, open_page):
    page = open_page(page_of(pressed, step=20))
    tooltip = page.locator(".ni-tooltip")
    for selector, word in [(".ni-strip", "tokens"), (".ni-rows", "sequence"), (".ni-blocks", "block")]:
        box = page.locator(selector).bounding_box()
        page.mouse.move(box["x"] + 120, box["y"] + 12)
        assert tooltip.is_visible(), selector
        assert word in tooltip.inner_text()
    page.locator(".ni-chips [data-seq]").first.hover()
    assert "sequence" in tooltip.inner_text()


# ---- tours --------------------------------------------------------------------------------------------


def test_a_tour_moves_step_and_selection(pressed, open_page):
    tour = [(4, 1, "First"), (20, 3, "Then"), (-1, None, "Last")]
    page = open_page(page_of(pressed, tour=tour))
    places = [(4, "1"), (20, "3"), (len(pressed.steps) - 1, "")]
    for i, (_, _, caption) in enumerate(tour):
        assert page.locator(".ni-caption").inner_text() == caption
        assert (step_of(page), page.get_by_label("Selected sequence").input_value()) == places[i]
        if i < len(tour) - 1:
            page.get_by_role("button", name="Next", exact=True).click()
        settle(page)
    assert page.get_by_role("button", name="Next", exact=True).is_disabled()
    page.get_by_role("button", name="Back", exact=True).click()
    settle(page)
    assert page.locator(".ni-caption").inner_text() == "Then"


# ---- texts that are not harmless -------------------------------------------------------------------------


def test_hostile_and_endless_texts_stay_texts(open_page):
    trace = simulate([prompt(5), prompt(4, 1)], params(3), **limits(4, 16))
    trace.requests[0].prompt = EVIL
    trace.outputs[0]["text"] = "w" * 10_000
    page = open_page(page_of(trace, select=0, tour=[(0, 0, EVIL)]))
    assert page.locator(".ni-text").first.inner_text() == EVIL
    assert page.locator(".ni-caption").inner_text() == EVIL
    assert page.locator(".ni-text").nth(1).get_attribute("title") == "w" * 10_000
    assert page.locator(".ni-text").nth(1).bounding_box()["height"] < 140
    assert page.locator("img").count() == 0
    assert "owned" not in page.title()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


# ---- themes and sizes ----------------------------------------------------------------------------------------


def test_the_theme_follows_the_system_and_switches_live(pressed, open_page):
    page = open_page(page_of(pressed), color_scheme="dark")
    root = page.locator(".ni")
    assert root.get_attribute("data-theme") == "dark"
    dark = pixels(page, ".ni-rows")
    page.emulate_media(color_scheme="light")
    page.wait_for_selector(".ni[data-theme=light]")
    settle(page)
    assert pixels(page, ".ni-rows") != dark
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_selector(".ni[data-theme=dark]")
    settle(page)
    assert pixels(page, ".ni-rows") == dark


def test_an_asked_for_theme_wins(pressed, open_page):
    page = open_page(page_of(pressed, theme="dark"), color_scheme="light")
    assert page.locator(".ni").get_attribute("data-theme") == "dark"


@pytest.mark.parametrize(("width", "columns"), [(1100, 2), (660, 1), (360, 1)])
def test_columns_stack_and_nothing_is_cut(pressed, open_page, width, columns):
    page = open_page(page_of(pressed, step=20, select=3), width=width)
    tops = [page.locator(".ni-columns > .ni-panel").nth(i).bounding_box()["y"] for i in (0, 1)]
    assert (tops[0] == tops[1]) == (columns == 2)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_at_twice_the_size_pictures_stay_sharp_and_nothing_is_cut(pressed, open_page):
    """A browser zoomed to 200 % has half the CSS pixels and two screen pixels in each."""
    page = open_page(page_of(pressed, step=20), width=550, height=450, device_scale_factor=2)
    canvas = page.locator(".ni-rows")
    assert canvas.evaluate("c => c.width") == round(2 * canvas.bounding_box()["width"])
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    sizes = page.evaluate(
        "() => [...document.querySelectorAll('.ni p, .ni button')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 11


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 700, 320])
def test_at_twice_the_size_no_control_is_cut_or_covered(pressed, open_page, width, theme):
    """Windows of 2560, 1400 and 640 px at 200 %."""
    tour = [(20, 3, "A caption that is long enough to be broken into two lines at least, whatever the width.")] * 2
    html = page_of(pressed, step=20, select=3, tour=tour, theme=theme)
    page = open_page(html, width=width, height=400, device_scale_factor=2)
    page.get_by_role("button", name="Show as table").click()
    page.locator("summary").click()
    settle(page)
    assert crowded(page.locator(".ni")) == []


# ---- in a notebook, and side by side ----------------------------------------------------------------------------


def frame_page(*outputs, theme="true"):
    return f"<!doctype html><body data-jp-theme-light='{theme}'>{''.join(f'<div class=out>{o}</div>' for o in outputs)}"


def test_the_frame_takes_the_posters_place_and_fits(pressed, open_page):
    page = open_page(frame_page(explore(pressed).html, theme="false"), ready=False)
    inside = page.frame_locator("iframe")
    inside.locator(".ni[data-ready]").wait_for()
    assert not page.locator("[data-ni-poster]").is_visible()
    assert inside.locator(".ni").get_attribute("data-theme") == "dark"
    page.wait_for_function("() => document.querySelector('iframe').clientHeight !== 900")
    frame, content = page.locator("iframe").bounding_box(), inside.locator("main").bounding_box()
    assert 0 <= frame["height"] - content["height"] < 12
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    inside.locator(".ni[data-theme=light]").wait_for()


def test_where_scripts_are_off_the_poster_stays(pressed, open_page):
    page = open_page(frame_page(explore(pressed).html), ready=False, java_script_enabled=False)
    assert page.locator("[data-ni-poster]").is_visible()
    assert not page.locator("iframe").is_visible()


def test_a_cell_run_three_times_leaves_one_explorer(pressed, open_page):
    page = open_page(frame_page(explore(pressed).html), ready=False)
    html = explore(pressed).html
    for _ in range(3):
        page.evaluate("html => document.querySelector('.out').innerHTML = html", html)
        page.frame_locator("iframe").locator(".ni[data-ready]").wait_for()
    assert page.locator("iframe").count() == 1
    slider = page.frame_locator("iframe").locator(SLIDER)
    slider.press("ArrowRight")
    page.frame_locator("iframe").locator(".ni-output", has_text="step 1 /").wait_for()
    assert slider.input_value() == "1"


def mounted(trace, other):
    """Two explorers in one document over one module, as a widget manager would mount them."""
    import json

    payloads = [explore(t)._payload for t in (trace, other)]
    source = json.dumps(module("explorer.js", "explorer.css")).replace("<", "\\u003c")
    return f"""<!doctype html><body><div id=a></div><div id=b></div><script type="module">
const blob = new Blob([{source}], {{type: "text/javascript"}});
const module = await import(URL.createObjectURL(blob));
window.payloads = {json.dumps(payloads)};
window.listeners = 0;
function plain(values) {{
  const on = new Map();
  return {{
    get: k => values[k], save_changes() {{}},
    set(k, v) {{ values[k] = v; for (const f of on.get("change:" + k) ?? []) f(); }},
    on(n, f) {{ on.set(n, (on.get(n) ?? new Set()).add(f)); window.listeners += 1; }},
    off(n, f) {{ on.get(n).delete(f); window.listeners -= 1; }},
    send: message => [...on.get("msg:custom")].map(f => f(message)),
  }};
}}
window.models = window.payloads.map(trace => plain({{trace, step: 0, selected: -1, theme: "light"}}));
window.stops = [];
window.mount = async (i, id) => {{
  stops[i] = await module.render({{model: models[i], el: document.getElementById(id)}});
}};
await mount(0, "a"); await mount(1, "b");
document.body.dataset.mounted = "true";
</script>"""


@pytest.fixture
def two(pressed, open_page):
    other = simulate([prompt(9, i) for i in range(4)], params(8), **limits(4, 12))
    page = open_page(mounted(pressed, other), ready=False)
    page.wait_for_selector("[data-mounted]")
    return page


def test_two_explorers_on_a_page_do_not_disturb_each_other(two, pressed):
    two.locator("#a").locator(SLIDER).focus()
    press(two, "ArrowRight", "ArrowRight")
    assert (step_of(two, "#a"), step_of(two, "#b")) == (2, 0)
    assert told(two, "#a") == pressed.explain(2).split("\n")
    two.wait_for_function("() => models[0].get('step') === 2")
    assert two.evaluate("models[1].get('step')") == 0


def test_a_shared_step_moves_both(two):
    two.evaluate("() => models[0].on('change:step', () => models[1].set('step', models[0].get('step')))")
    two.locator("#a").locator(SLIDER).focus()
    press(two, "PageUp")
    two.wait_for_function("() => document.querySelector('#b input[type=range]').value === '10'")


def test_cleaning_up_leaves_nothing(two):
    assert two.evaluate("listeners") > 0
    for _ in range(3):
        two.evaluate("async () => { stops[0](); await mount(0, 'a'); }")
    assert two.locator(".ni").count() == 2
    before = two.evaluate("listeners")
    two.evaluate("stops.forEach(stop => stop())")
    assert before == 6
    assert two.evaluate("listeners") == 0
    assert two.locator(".ni").count() == 0


def test_appended_steps_show_without_a_new_start(pressed, open_page):
    """A live run sends its steps in chunks; the reader keeps its place."""
    whole = explore(pressed)._payload
    packer, steps, events = Packer(pressed), pressed.steps, pressed.events
    payload, chunks = packer.header(), []
    try:
        for end in (7, 20, len(steps)):
            pressed.steps, pressed.events = steps[:end], [event for event in events if event.step < end]
            chunks.append(packer.chunk())
    finally:
        pressed.steps, pressed.events = steps, events
    page = open_page(mounted(pressed, pressed), ready=False)
    page.wait_for_selector("[data-mounted]")
    page.evaluate(
        """async ([source, payload]) => {
          const live = (await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})))).default;
          const [model, el] = [models[1], document.getElementById("b")];
          stops[1]();
          for (const [key, value] of Object.entries({payload, status: {}, step_shown: 0})) model.set(key, value);
          live.initialize({model});
          stops[1] = await live.render({model, el});
        }""",
        [live_module(), payload | {"chunks": chunks[:1]}],
    )
    assert page.locator("#b").locator(SLIDER).get_attribute("max") == "6"
    for chunk in chunks[1:]:
        page.evaluate("chunk => void models[1].send({type: 'chunk', chunk})", chunk)
    page.locator(f"#b input[type=range][max='{len(steps) - 1}']").wait_for()
    settle(page)
    assert step_of(page, "#b") == 0
    for step in (0, 25, len(steps) - 1):
        page.evaluate("step => (models[0].set('step', step), models[1].set('step_shown', step))", step)
        settle(page)
        assert told(page, "#b") == told(page, "#a")
        for picture in (".ni-strip", ".ni-rows", ".ni-blocks"):
            assert pixels(page, f"#a {picture}") == pixels(page, f"#b {picture}"), (picture, step)
    assert len(whole["chunks"]) == 1


@pytest.mark.parametrize("style", ["display:none", "width:30px"])
def test_an_explorer_without_room_waits_until_it_has_some(two, style):
    """A collapsed output has no width; a picture of no width must not keep the browser busy."""
    two.evaluate("style => { document.getElementById('a').style.cssText = style; }", style)
    settle(two)
    two.evaluate("models[0].set('step', 9)")
    settle(two)
    two.evaluate("() => { document.getElementById('a').style.cssText = ''; }")
    settle(two)
    two.locator("#a .ni-sentences", has_text="Step 9 (").wait_for()
