"""What the figures show: artists, numbers, shapes, both themes, errors, and large traces."""

import subprocess
import sys
import time
from collections import Counter
from io import BytesIO

import pytest
from kit.workloads import pressed_run
from matplotlib.colors import to_hex
from matplotlib.text import Text

from nanoinfer import SamplingParams, simulate
from nanoinfer.trace.spans import sequence_spans
from nanoinfer.trace.state import SchedulerState
from nanoinfer.viz.theme import THEMES, contrast, get_theme, ink_on

PNG = b"\x89PNG\r\n\x1a\n"


def named(figure, gid):
    """The one collection called `gid`."""
    found = [a for axes in figure.axes for a in axes.collections if a.get_gid() == gid]
    assert len(found) == 1, f"{len(found)} artists are called {gid}"
    return found[0]


def boxes(figure, gid):
    """(x0, y0, x1, y1) of every bar of a collection, rounded."""
    extents = [path.get_extents().extents for path in named(figure, gid).get_paths()]
    return [tuple(float(round(v, 3)) for v in box) for box in extents]


def heights(figure, gid):
    return {round(y1 - y0, 3) for _, y0, _, y1 in boxes(figure, gid)}


def texts(figure):
    return [t.get_text() for t in figure.findobj(Text) if t.get_visible() and t.get_text()]


def drawn_texts(figure):
    """All texts but the labels of ticks outside the axis, which matplotlib keeps and does not draw."""
    yield from figure.texts
    for axes in figure.axes:
        yield from axes.texts
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = sorted(axis.get_view_interval())
            labels = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            yield from (t for t in [*labels, axis.label] if t.get_text() and t.get_visible())


def everything(trace, i, theme):
    holder = next(iter(trace.state(i).block_tables))
    yield trace.timeline(theme=theme)
    yield trace.timeline(theme=theme, start=2, end=-2)
    yield trace.block_map(i, theme=theme)
    yield trace.block_map(i, theme=theme, select=holder)
    yield trace.block_map(i, theme=theme, by_owner=True)
    yield trace.queues(i, theme=theme)
    yield trace.budget(theme=theme)


# ---- all figures ---------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_text_leaves_the_figure(busy, theme):
    for figure in everything(busy["prefill_first"], 17, theme):
        assert to_hex(figure.get_facecolor()) == get_theme(theme).background
        figure.draw_without_rendering()  # places the tick labels
        width, height = figure.bbox.size
        renderer = figure.canvas.get_renderer()
        for text in drawn_texts(figure):
            box = text.get_window_extent(renderer)
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
            assert inside, f"{text.get_text()!r} is clipped"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_figure_is_its_own_notebook_output(self_preemption, theme):
    data, size = self_preemption.timeline(theme=theme)._repr_png_()
    assert data.startswith(PNG)
    drawn = tuple(int.from_bytes(data[at : at + 4], "big") for at in (16, 20))  # from the PNG's header
    assert drawn == (2 * size["width"], 2 * size["height"])
    assert size["width"] == 950


def test_no_two_texts_overlap(busy):
    for figure in everything(busy["prefill_first"], 17, "light"):
        figure.draw_without_rendering()
        renderer = figure.canvas.get_renderer()
        placed = [(t.get_text(), t.get_window_extent(renderer)) for t in drawn_texts(figure)]
        overlaps = [(a, b) for n, (a, box) in enumerate(placed) for b, other in placed[:n] if box.overlaps(other)]
        assert not overlaps


def test_pictures_use_neither_pyplot_nor_torch():
    code = (
        "import sys; from nanoinfer import simulate; t = simulate([[1, 2]]);"
        "t.timeline(); t.block_map(0); t.queues(0); t.budget()._repr_png_();"
        "print([m for m in ('torch', 'matplotlib.pyplot') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_an_unknown_theme_names_the_known_ones(busy):
    trace = busy["mixed"]
    for draw in (trace.timeline, trace.budget, lambda **o: trace.queues(0, **o), lambda **o: trace.block_map(0, **o)):
        with pytest.raises(ValueError, match="theme must be one of 'light', 'dark', got 'sepia'"):
            draw(theme="sepia")


@pytest.mark.parametrize("theme", THEMES.values(), ids=str)
def test_states_stand_off_the_background_and_text_off_its_fill(theme):
    for kind in ("waiting", "prefill", "decode", "preempted", "finished", "private", "selected"):
        assert contrast(getattr(theme, kind), theme.background) >= 3, kind
    for kind in ("prefill", "empty", "cached", "private", "shared", "selected"):
        fill = getattr(theme, kind)
        assert contrast(ink_on(fill), fill) >= 4.5, kind
    assert contrast(theme.muted, theme.background) >= 4.5


# ---- timeline ------------------------------------------------------------------------------


def test_timeline_draws_one_bar_per_span_at_its_steps(self_preemption):
    figure = self_preemption.timeline()
    counts = Counter(span.kind for span in sequence_spans(self_preemption))
    for kind, count in counts.items():
        assert len(boxes(figure, kind)) == count, kind
    assert [(x0, x1) for x0, _, x1, _ in boxes(figure, "decode")] == [(3.5, 7.5), (8.5, 11.5)]
    assert [(x0, x1) for x0, _, x1, _ in boxes(figure, "preempted")] == [(3.5, 7.5)]
    assert [(x0, x1) for x0, _, x1, _ in boxes(figure, "waiting")] == [(-0.5, 1.5)]
    assert {round((y0 + y1) / 2) for _, y0, _, y1 in boxes(figure, "waiting")} == {1}


def test_timeline_tells_states_apart_by_shape(busy):
    figure = busy["prefill_first"].timeline()
    (full,) = heights(figure, "prefill")
    assert heights(figure, "preempted") == heights(figure, "finished") == heights(figure, "hit") == {full}
    assert heights(figure, "decode") == {round(full / 2, 3)}
    assert heights(figure, "waiting") == {round(full / 5, 3)}
    assert named(figure, "preempted").get_hatch()
    assert named(figure, "preempted").get_linewidth()[0] > 0
    assert not named(figure, "prefill").get_hatch()
    hollow = named(figure, "hit")
    assert to_hex(hollow.get_facecolor()[0]) == get_theme("light").background
    assert to_hex(hollow.get_edgecolor()[0]) == get_theme("light").prefill
    zorders = [named(figure, kind).get_zorder() for kind in ("waiting", "decode", "prefill", "preempted", "finished")]
    assert zorders == sorted(set(zorders))


def test_timeline_writes_token_counts_where_they_fit(self_preemption):
    shown = texts(self_preemption.timeline())
    assert [t for t in shown if t in ("6", "2", "8", "1")].count("6") >= 2
    assert "Timeline: 2 sequences, 12 steps, policy prefill_first" in shown
    assert "seq 0" in shown
    assert "gap: running, not in the batch" in shown


def test_a_hit_and_its_chunk_share_one_step(self_preemption):
    figure = self_preemption.timeline()
    ((left, _, middle, _),) = boxes(figure, "hit")
    chunk = boxes(figure, "prefill")[-1]
    assert (left, chunk[0], chunk[2]) == (7.5, middle, 8.5)


def test_timeline_window(busy):
    trace = busy["prefill_first"]
    figure = trace.timeline(start=5, end=25)
    assert "Timeline: 11 sequences, steps 5 to 24 of 50, policy prefill_first" in texts(figure)
    for kind in ("waiting", "decode", "prefill", "preempted"):
        assert all(x0 >= 4.5 and x1 <= 24.5 for x0, _, x1, _ in boxes(figure, kind))
    with pytest.raises(ValueError, match="no step to draw from start=60 to end=None: this trace has 50 steps"):
        trace.timeline(start=60)


def test_two_timelines_share_an_axis_and_mark_where_they_part(busy):
    from nanoinfer.viz.timeline import side_by_side

    figure = side_by_side(busy["prefill_first"], busy["mixed"], 7, theme="dark")
    a, b = (axes for axes in figure.axes if axes.axison)
    assert a.get_xlim() == b.get_xlim() == (-0.5, 49.5)
    assert all(list(axes.lines[0].get_xdata()) == [6.5, 6.5] for axes in (a, b))
    assert "Two runs of one workload: they part at step 7" in texts(figure)


# ---- blocks --------------------------------------------------------------------------------


def test_block_map_counts_and_draws_each_state(busy):
    trace = busy["prefill_first"]
    figure = trace.block_map(17)
    state = trace.state(17)
    assert "KV blocks after step 17: 21 used, 2 shared, 3 free but cached, 0 empty of 24" in texts(figure)
    assert len(boxes(figure, "block-private")) == 19
    assert len(boxes(figure, "block-shared")) == state.ref_counts.count(4) == 2
    assert len(boxes(figure, "block-cached")) == len(boxes(figure, "block-dot")) == 3
    assert len(boxes(figure, "block-empty")) == 0
    assert named(figure, "block-shared").get_linewidth()[0] > 1
    assert texts(figure).count("\u00d74") == 2
    assert {str(i) for i in range(24)} <= set(texts(figure))


def test_block_map_outlines_what_changed(self_preemption):
    figure = self_preemption.block_map(4)  # block 4 taken, 2 and 3 given up
    changed = named(figure, "block-changed")
    assert sorted(round(x0 / 0.56) for x0, *_ in boxes(figure, "block-changed")) == [2, 3, 4]
    assert changed.get_linestyle()[0][1] is not None  # dashed
    for quiet in (1, 5):  # step 1 makes block 1 findable, which does not show
        assert len(boxes(self_preemption.block_map(quiet), "block-changed")) == 0


def test_two_holders_make_a_block_shared():
    prompts = [[*range(8), 50], [*range(8), 60]]
    trace = simulate(prompts, SamplingParams(max_tokens=4), arrivals=[0, 1], kvcache_block_size=4)
    figure = trace.block_map(1)
    assert len(boxes(figure, "block-shared")) == texts(figure).count("\u00d72") == 2


def test_a_freed_twin_that_nothing_finds_is_empty(busy):
    """A block may still carry a hash that the index now maps to another block; a lookup cannot revive it."""
    trace = simulate([[1, 2]], SamplingParams(max_tokens=1), kvcache_block_size=1, num_kvcache_blocks=3)
    twin = SchedulerState([], [], {}, [0, 0, 0], [7, 7, -1], {7: 1}, [2, 0, 1])
    trace.state = lambda i: twin
    assert "KV blocks after step 0: 0 used, 0 shared, 1 free but cached, 2 empty of 3" in texts(trace.block_map(0))


def test_selecting_a_sequence_shows_its_table(self_preemption):
    shown = texts(self_preemption.block_map(5, select=0))  # 8 prompt tokens and 2 more in KV, table 0, 1, 4
    (headline,) = (t for t in shown if t.startswith("Block table of sequence 0, logical \u2192 physical"))
    assert headline.endswith("3 blocks of 4 slots, 10 tokens written, 2 of 4 slots in the last block")
    assert [t for t in shown if "\u2192 " in t and "table" not in t] == ["0 \u2192 0", "1 \u2192 1", "2 \u2192 4"]
    assert [t for t in shown if t.startswith("tokens")] == ["tokens 0\u20133", "tokens 4\u20137", "tokens 8\u20139"]
    figure = self_preemption.block_map(5, select=0)
    fills = [c for axes in figure.axes for c in axes.collections if c.get_gid() == "table-fill"]
    widths = [path.get_extents().width for fill in fills for path in fill.get_paths()]
    assert widths[2] == pytest.approx(widths[0] / 2)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_blocks_of_the_selection_are_told_by_shape_too(theme):
    prompts = [[*range(8), 50], [*range(8), 60]]
    trace = simulate(prompts, SamplingParams(max_tokens=4), arrivals=[0, 1], kvcache_block_size=4, num_kvcache_blocks=8)
    figure = trace.block_map(1, theme=theme, select=1)
    corners, frames = named(figure, "block-corner"), named(figure, "block-selected-shared")
    assert (len(corners.get_paths()), len(frames.get_paths())) == (3, 2)
    for mark in (to_hex(corners.get_facecolor()[0]), to_hex(frames.get_edgecolor()[0])):
        assert contrast(mark, get_theme(theme).selected) > 7
    assert len(named(figure, "legend-corner").get_paths()) == 1
    assert not [c for axes in trace.block_map(1).axes for c in axes.collections if c.get_gid() == "block-corner"]


def test_reserved_blocks_are_not_written_yet():
    trace = simulate([list(range(12))], SamplingParams(max_tokens=1), kvcache_block_size=4, max_num_batched_tokens=5)
    shown = texts(trace.block_map(0, select=0))
    assert [t for t in shown if t.startswith("token") or t == "reserved"] == ["tokens 0\u20133", "token 4", "reserved"]
    assert any("5 tokens written, the last block is reserved" in t for t in shown)


def test_an_unknown_selection_names_the_holders(self_preemption):
    with pytest.raises(ValueError, match="sequence 1 holds no blocks after step 5; those that do: 0"):
        self_preemption.block_map(5, select=1)
    with pytest.raises(ValueError, match="sequence 0 holds no blocks after step 11; those that do: none"):
        self_preemption.block_map(11, select=0)


def test_owners_are_named_in_their_cells(self_preemption):
    shown = texts(self_preemption.block_map(3, by_owner=True))
    assert [t for t in shown if t in ("s0", "s1")] == ["s0", "s0", "s1", "s1"]


@pytest.mark.parametrize("blocks", [4_096, 100_000])
def test_large_pools_are_drawn_in_time(blocks):
    trace = simulate([[5] * 900], SamplingParams(max_tokens=3), kvcache_block_size=1, num_kvcache_blocks=blocks)
    started = time.process_time()
    figure = trace.block_map(1, select=0)
    figure.savefig(BytesIO())
    assert time.process_time() - started < 5
    assert f"KV blocks after step 1: 901 used, 0 shared, 0 free but cached, {blocks - 901} empty of {blocks}" in texts(
        figure
    )
    assert "+854 more" in texts(figure)  # 901 entries: 46, this note and the last
    assert sum(c.get_gid() == "table-fill" for axes in figure.axes for c in axes.collections) == 47
    if blocks > 16_384:
        covered = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in boxes(figure, "tile-selected"))
        (x0, y0, x1, y1), *_ = boxes(figure, "tile-empty")
        assert covered / ((x1 - x0) * (y1 - y0)) == pytest.approx(901 / 25, rel=0.05)
        with pytest.raises(ValueError, match="by_owner shows at most 1024 blocks, this pool has 100000"):
            trace.block_map(1, by_owner=True)


# ---- queues --------------------------------------------------------------------------------


def test_queues_mark_a_preemption_on_both_sides(self_preemption):
    figure = self_preemption.queues(4)
    assert len(boxes(figure, "running-before")) == 2
    assert len(boxes(figure, "running-before-left")) == 1
    assert len(boxes(figure, "waiting-after-entered")) == 1
    assert len(boxes(figure, "waiting-before-left")) == len(boxes(figure, "running-after-entered")) == 0
    assert "Preempted: 1 for itself (2 blocks back, 8 tokens lost)" in texts(figure)


def test_queues_say_why_admission_stopped(self_preemption):
    shown = texts(self_preemption.queues(6))
    assert "Admission stopped: NO_BLOCKS needed=3 free=2" in shown
    assert "Decode loop stopped: RUNNING_EMPTY" in shown


def test_queues_show_arrivals_admissions_and_finishes(self_preemption):
    first, last = self_preemption.queues(0), self_preemption.queues(7)
    assert len(boxes(first, "waiting-before")) == 2  # arrived for this step
    assert "Arrived: 0 and 1" in texts(first)
    assert "Finished: 0 (length)" in texts(last)
    admitting = self_preemption.queues(8)
    assert len(boxes(admitting, "waiting-before-left")) == len(boxes(admitting, "running-after-entered")) == 1
    assert "Admitted: 1" in texts(admitting)


def test_long_queues_end_in_a_number():
    trace = simulate([[1]] * 60, SamplingParams(max_tokens=2), max_num_seqs=50, kvcache_block_size=4)
    figure = trace.queues(0)
    assert len(boxes(figure, "waiting-before")) == 48
    assert max(x1 for _, _, x1, _ in boxes(figure, "waiting-before")) <= figure.get_figwidth() - 0.399
    assert len({y0 for _, y0, _, _ in boxes(figure, "waiting-before")}) > 1  # wrapped
    assert "+12 (2 of them leave)" in texts(figure)
    assert "+2 (2 of them entered)" in texts(figure)


# ---- budget --------------------------------------------------------------------------------


def test_budget_stacks_prefill_on_decode_under_the_limit(busy):
    trace = busy["mixed"]
    figure = trace.budget()
    decode = {round((x0 + x1) / 2): (y0, y1, x1 - x0) for x0, y0, x1, y1 in boxes(figure, "decode")}
    prefill = {round((x0 + x1) / 2): (y0, y1, x1 - x0) for x0, y0, x1, y1 in boxes(figure, "prefill")}
    for step in trace.steps:
        top = max(bars[step.index][1] for bars in (decode, prefill) if step.index in bars)
        assert top == step.num_batched_tokens
        if step.phase == "mixed":
            assert prefill[step.index][0] == decode[step.index][1]
            assert prefill[step.index][2] > 1.5 * decode[step.index][2]  # told apart without colour
    lines = {line.get_gid(): line for axes in figure.axes for line in axes.lines}
    assert set(lines["budget"].get_ydata()) == {16}
    assert lines["budget"].is_dashed()
    assert set(lines["pool"].get_ydata()) == {24}


def test_a_budget_far_above_is_named_and_does_not_flatten_the_bars():
    trace = simulate([[1] * 100] * 2, SamplingParams(max_tokens=3), kvcache_block_size=4)
    figure = trace.budget()
    assert not [line for axes in figure.axes for line in axes.lines if line.get_gid() == "budget"]
    assert any(t.startswith("budget 16384: 82 times the highest bar") for t in texts(figure))
    tokens = next(axes for axes in figure.axes if axes.axison)
    assert tokens.get_ylim()[1] < 300


def on_gpu(trace):
    """The trace as a GPU would have timed it: prefill eagerly, decode by a graph."""
    trace.header.clock_unit = "seconds"
    for step in trace.steps:
        step.timing |= {"schedule": 0.0002, "launch": 0.0003, "gpu": 0.001 * (1 + step.index % 3)}
        step.graph_size = 8 if step.phase == "decode" else None
    return trace


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_budget_draws_gpu_times_where_there_are_some(theme):
    trace = on_gpu(pressed_run())
    figure = trace.budget(theme=theme)
    assert len(figure.axes) == len(pressed_run().budget().axes) + 1
    drawn = {round((x0 + x1) / 2): (kind, y1) for kind in ("graph", "eager") for x0, _, x1, y1 in boxes(figure, kind)}
    assert drawn.keys() == set(range(len(trace.steps)))
    for step in trace.steps:
        expected = "graph" if step.phase == "decode" else "eager"
        assert drawn[step.index] == (expected, pytest.approx(step.timing["gpu"] * 1e3))
    fills = {kind: to_hex(named(figure, kind).get_facecolor()[0]) for kind in ("graph", "eager")}
    assert fills["eager"] == get_theme(theme).background != fills["graph"]  # told apart without colour
    (line,) = [line for axes in figure.axes for line in axes.lines if line.get_gid() == "host"]
    assert set(line.get_ydata().round(6)) == {0.5}
    assert any(text.startswith("GPU time, ms") for text in texts(figure))


def test_preemptions_are_marked_at_their_steps(self_preemption):
    figure = self_preemption.budget()
    (marks,) = [c for axes in figure.axes for c in axes.collections if c.get_gid() == "preemptions" and axes.axison]
    assert marks.get_offsets()[:, 0].tolist() == [4]


# ---- dense traces --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dense():
    """About 10,000 steps and 256 sequences: one long decode, the others in a queue behind it."""
    prompts = [[i] * 8 for i in range(256)]
    params = [SamplingParams(max_tokens=10_000 if i == 0 else 40 + i % 9) for i in range(256)]
    return simulate(
        prompts, params, max_num_seqs=3, max_model_len=20_000, kvcache_block_size=256, num_kvcache_blocks=42
    )


def test_a_dense_trace_is_drawn_in_time_with_rare_states_kept(dense):
    assert len(dense.steps) > 10_000
    started = time.process_time()
    figure = dense.timeline()
    figure.savefig(BytesIO())
    assert time.process_time() - started < 8
    assert len(boxes(figure, "finished")) == 256
    axes = next(axes for axes in figure.axes if axes.axison)
    px = len(dense.steps) / (axes.get_position().width * figure.get_size_inches()[0] * 100)
    assert min(x1 - x0 for x0, _, x1, _ in boxes(figure, "prefill")) >= px * 0.99
    assert min(x1 - x0 for x0, _, x1, _ in boxes(figure, "finished")) >= px * 1.99
    assert len(axes.get_yticks()) < 64  # names are thinned out, not printed over each other


def test_a_dense_budget_keeps_the_highest_step_of_every_column(dense):
    figure = dense.budget()
    tops = [y1 for gid in ("prefill", "decode") for _, _, _, y1 in boxes(figure, gid)]
    assert max(tops) == max(step.num_batched_tokens for step in dense.steps)
    assert len(boxes(figure, "decode")) <= 950
    assert "each column is the fullest of about" in figure.texts[0].get_text()
