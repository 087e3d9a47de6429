"""The comparison as data, words and notebook output; no browser."""

import base64
import json
import re
from types import SimpleNamespace

import pytest
from kit.helpers import limits, params, prompt
from kit.node import run_node
from kit.payloads import case

from nanoinfer import SamplingParams, compare, simulate
from nanoinfer.explore.comparison import ComparisonPage, payload
from nanoinfer.explore.comparison_words import MOST_LISTED, difference_text, metrics_rows, side_names
from nanoinfer.explore.frames import MOST_FRAMES
from nanoinfer.reasons import Stop


def costs(plan):
    """Seconds: a fixed part, and one for every token."""
    return 0.002 + 0.0001 * sum(row.num_scheduled for row in plan.rows)


def run(policy="prefill_first", **options):
    prompts = [prompt(5 + i, i) for i in range(5)]
    settings = limits(4, 12) | {"policy": policy} | options
    return simulate(prompts, params(6), arrivals=[0, 0, 0.004, 0.008, 0.01], **settings)


@pytest.fixture(scope="module")
def timed():
    return compare(run(cost_model=costs), run("mixed", cost_model=costs))


def test_both_traces_are_packed_whole(timed):
    told = payload(timed)
    traces = timed.trace_a, timed.trace_b
    run_node("payload.test.mjs", [case(s["name"], t, s["trace"]) for s, t in zip(told["sides"], traces, strict=True)])
    assert [side["name"] for side in told["sides"]] == ["policy prefill_first", "policy mixed"]


def test_the_clock_says_when_every_step_started_and_the_last_one_ended(timed):
    told, traces = payload(timed), (timed.trace_a, timed.trace_b)
    clock = {name: [step.clock for step in trace.steps] for name, trace in zip("ab", traces, strict=True)}
    run_node("columns.test.mjs", [{"chunk": told["clock"], "columns": clock}])
    assert told["unit"] == "seconds"
    for trace, end in zip(traces, told["ends"], strict=True):
        assert end == trace.steps[-1].clock + trace.steps[-1].timing["duration"]


def test_frames_are_equally_long_on_both_sides(monkeypatch):
    """A trace of many steps is shown in buckets; the other one then is as well, even if it is short."""
    import nanoinfer.explore.comparison as module

    short, long = run(cost_model=costs), run(cost_model=costs, max_num_seqs=2)
    limit = len(short.steps) + 1
    assert limit < len(long.steps) < MOST_FRAMES
    monkeypatch.setattr(module, "frames_of", lambda trace: SimpleNamespace(size=-(-len(trace.steps) // limit)))
    comparison = compare(short, long)
    told = payload(comparison)
    sizes = [side["trace"]["meta"]["steps_per_frame"] for side in told["sides"]]
    assert sizes[0] == sizes[1] > 1
    assert comparison.first_difference > sizes[0]
    assert told["difference"]["frame"] == comparison.first_difference // sizes[0]
    clock = {n: [step.clock for step in t.steps[:: sizes[1]]] for n, t in (("a", short), ("b", long))}
    run_node("columns.test.mjs", [{"chunk": told["clock"], "columns": clock}])


def test_clocks_that_count_different_things_have_no_common_time():
    comparison = compare(run(cost_model=costs), run())
    told = payload(comparison)
    assert told["unit"] is None
    rows = {row["name"]: row for row in told["metrics"]}
    assert rows["duration"]["unit"] == "seconds in a, steps in b"
    assert rows["duration"]["ratio"] == "\u2013"
    assert rows["num_steps"]["ratio"] != "\u2013"


# ---- words ------------------------------------------------------------------------------------------------


def test_sides_are_named_by_what_differs():
    a = run()
    assert side_names(a, run()) == ("policy prefill_first", "policy prefill_first")
    assert side_names(a, run(num_kvcache_blocks=20)) == ("num_kvcache_blocks 12", "num_kvcache_blocks 20")
    other = run("mixed", num_kvcache_blocks=20, max_num_seqs=3, max_num_batched_tokens=99)
    assert re.fullmatch(r"policy mixed, (\w+ \d+, ){1}\w+ \d+ and 1 more", side_names(a, other)[1])


def test_scheduler_classes_name_sides_with_equal_settings():
    from nanoinfer import Scheduler

    class Patient(Scheduler):
        pass

    assert side_names(run(), run(scheduler_cls=Patient)) == ("Scheduler", "Patient")


def test_the_first_difference_is_a_sentence(timed):
    i = timed.first_difference
    a, b = ({r.seq_id: r for r in t.steps[i].rows} for t in (timed.trace_a, timed.trace_b))
    text = difference_text(timed)
    assert text.startswith(f"The traces first differ at step {i}: ")
    for side, mine, other in (("a", a, b), ("b", b, a)):
        extra = [seq_id for seq_id in mine if seq_id not in other]
        assert (f"only {side} computes sequence" in text) == bool(extra)
        assert all(re.search(rf"\b{seq_id}\b", text.split(": ", 1)[1]) for seq_id in extra)


def test_equal_runs_say_so():
    comparison = compare(run(), run())
    assert difference_text(comparison) == comparison.what
    assert payload(comparison)["difference"]["frame"] is None


def test_a_trace_that_only_ends_earlier_is_the_difference():
    short = run()
    del short.steps[-2:]
    comparison = compare(short, run())
    assert comparison.attribute == "steps"
    assert (comparison.value_a, comparison.value_b) == (len(short.steps), len(short.steps) + 2)
    assert difference_text(comparison) == (
        f"The traces first differ at step {len(short.steps)}: a has {len(short.steps)} steps, "
        f"b has {len(short.steps) + 2}."
    )
    assert "b: " in ComparisonPage(comparison).text
    assert "a: has ended" in ComparisonPage(comparison).text


def test_values_are_told_whatever_they_hold():
    """A reason may hold the very words that join the sentence."""
    a, b = run(), run()
    a.steps[2].stop, b.steps[2].stop = Stop("X: 1 in a, 2 in b"), Stop("Y" * 300)
    comparison = compare(a, b)
    assert (comparison.first_difference, comparison.attribute) == (2, "stop")
    assert (comparison.value_a, comparison.value_b) == ("X: 1 in a, 2 in b", "Y" * 300)
    assert comparison.what == f"stop: X: 1 in a, 2 in b in a, {'Y' * 300} in b"
    cut = "Y" * 160 + "\u2026"
    assert difference_text(comparison) == (
        f"The traces first differ at step 2: stop is X: 1 in a, 2 in b in a, {cut} in b."
    )


def test_other_chunks_and_other_blocks_are_told_apart():
    prompts = [list(range(100, 140))]
    settings = {"kvcache_block_size": 4, "num_kvcache_blocks": 20}
    runs = [simulate(prompts, params(2), max_num_batched_tokens=n, **settings) for n in (16, 24)]
    assert "sequence 0 gets its tokens 0 to 15 computed in a, 0 to 23 in b" in difference_text(compare(*runs))


def test_long_lists_are_cut():
    prompts = [prompt(3, i) for i in range(60)]
    runs = [simulate(prompts, params(2), **limits(4, 400, 400, n)) for n in (4, 60)]
    text = difference_text(compare(*runs))
    assert f"and {56 - MOST_LISTED + 1} more" in text
    assert len(text) < 300


# ---- metrics ------------------------------------------------------------------------------------------------


def test_every_metric_is_there_with_a_unit_and_a_ratio(timed):
    table = timed.metrics()
    rows = metrics_rows(timed)
    assert [row["name"] for row in rows] == list(table.index)
    factors = {"seconds": 1, "ms": 1e3, "\u00b5s": 1e6, "%": 100}
    for row in rows:
        assert row["unit"], row
        for side in ("a", "b"):
            value = table.loc[row["name"], side]
            assert len(row[side]) <= 9, "no raw long floats"
            told = float(row[side].replace(",", "")) / factors.get(row["unit"], 1)
            assert told == pytest.approx(value, rel=0.006, abs=1e-12), row
        if table.loc[row["name"], "a"]:
            assert float(row["ratio"].replace(",", "")) == pytest.approx(table.loc[row["name"], "b / a"], abs=0.006)
        else:
            assert row["ratio"] == "\u2013"


def test_a_first_look_has_the_means_and_the_counts(timed):
    first = [row["name"] for row in metrics_rows(timed) if not row["more"]]
    assert {"num_steps", "duration", "ttft mean", "num_preemptions"} <= set(first)
    assert not [name for name in first if re.search(r" (p\d\d|max)$", name)]


def test_times_are_in_units_that_read_well():
    slow, fast = (compare(*[run(p, cost_model=c) for p in ("prefill_first", "mixed")]) for c in (lambda _: 3, costs))
    units = [{row["name"]: row["unit"] for row in metrics_rows(c)} for c in (slow, fast)]
    assert [unit["latency mean"] for unit in units] == ["seconds", "ms"]
    assert units[0]["output_tokens_per_clock_unit"] == "tokens per second"
    counted = {row["name"]: row["unit"] for row in metrics_rows(compare(run(), run("mixed")))}
    assert (counted["ttft p90"], counted["output_tokens_per_clock_unit"]) == ("steps", "tokens per step")


def test_a_run_without_an_end_has_gaps_in_its_metrics():
    silent = [simulate([prompt(3)], SamplingParams(max_tokens=3), **limits(4, 8)) for _ in range(2)]
    for trace in silent:
        del trace.steps[:]
    rows = metrics_rows(compare(*silent))
    assert {row["ratio"] for row in rows if row["name"] == "duration"} == {"\u2013"}


# ---- output ----------------------------------------------------------------------------------------------------


def test_a_cell_gives_html_a_picture_and_text_and_no_widget(timed):
    bundle = ComparisonPage(timed)._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    i = timed.first_difference
    for part in (difference_text(timed), timed.trace_a.explain(i), timed.trace_b.explain(i), "b / a", "ttft mean"):
        assert part in bundle["text/plain"]
    assert "<iframe" in bundle["text/html"]
    assert "data-ni-poster" in bundle["text/html"]
    json.dumps(bundle)


def test_a_file_is_one_page_that_names_no_other_resource(timed, tmp_path):
    timed.to_html(tmp_path / "both.html", theme="dark")
    page = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"'\s)]+", page)) == {"http://www.w3.org/2000/svg"}
    assert '"theme":"dark"' in page
    assert difference_text(timed) in page.split("<noscript>")[1].split("</noscript>")[0]


def test_long_traces_get_a_poster_of_where_they_part():
    load = [[prompt(4)], params(900)]
    a, b = (simulate(*load, policy=p, max_model_len=1000, **limits(16, 80)) for p in ("prefill_first", "mixed"))
    assert ComparisonPage(compare(a, b)).png.startswith(b"\x89PNG")


def test_traces_without_steps_can_be_shown():
    bundle = ComparisonPage(compare(simulate([]), simulate([])))._repr_mimebundle_()
    assert "Both traces decided the same in all 0 steps." in bundle["text/plain"]


def test_theme_and_height_are_checked(timed):
    with pytest.raises(ValueError, match="theme must be one of"):
        ComparisonPage(timed, theme="pink")
    with pytest.raises(ValueError, match="height must be a positive"):
        ComparisonPage(timed, height=0)
