"""What a trace of the overlapped loop says: in words, figures, tables, files and pictures."""

import json

import pytest
from kit.helpers import config, limits, make_core, params, prompt
from kit.lazy_device import Driver
from test_perfetto import check, export

from nanoinfer import Trace, simulate
from nanoinfer.trace.events import SCHEMA_VERSION, endings
from nanoinfer.trace.spans import sequence_spans
from nanoinfer.trace.text import summary, text_timeline
from nanoinfer.viz.series import wasted_per_step
from nanoinfer.viz.theme import get_theme

EOS = 3


def scripted(ids):
    """The first ends by eos with its third token; the third with its last allowed one; the second never."""
    return EOS if (ids[0], len(ids)) in ((1, 6), (2001, 11)) else 8


def run(overlap=True, **more):
    prompts = [prompt(4), prompt(4, 1), prompt(6, 2)]
    return simulate(prompts, params(6, ignore_eos=False), scripted, EOS, overlap=overlap, **limits(4, 16) | more)


@pytest.fixture(scope="module")
def trace():
    return run()


# ---- words --------------------------------------------------------------------------------


def test_every_step_but_the_first_was_chosen_before_the_tokens_before_it_were_known(trace):
    for step in trace.steps:
        early = f"It was chosen before the tokens of step {step.index - 1} were known."
        assert (early in trace.explain(step.index).split("\n")) == (step.index > 0)
    plain = run(overlap=False)
    assert not any("chosen before" in plain.explain(i) for i in range(len(plain.steps)))


def test_a_step_after_a_pause_was_not_chosen_early():
    trace = simulate([prompt(4), prompt(4, 1)], params(1), arrivals=[0, 9], overlap=True, **limits(4, 8))
    assert "chosen before" not in trace.explain(1)


def test_a_wasted_row_names_the_step_that_had_ended_it(trace):
    sentence = (
        "Sequence 0's row was wasted: step 2 had already ended it (eos), "
        "which was known only after this step was launched."
    )
    assert [sentence in trace.explain(i) for i in range(6)] == [False, False, False, True, False, False]
    assert "Sequence 0 had finished (eos) in step 2, which was known only now; its blocks are free." in trace.explain(3)
    assert "finished" not in trace.explain(2)


def test_a_row_of_an_aborted_request_was_wasted_too():
    core = make_core(config(4, 8, overlap=True))
    trace = core.start_trace()
    core.add(prompt(4), params(9))
    core.add(prompt(4, 1), params(9))
    core.step()
    core.step()
    core.abort(0)
    core.step()
    assert trace.steps[1].columns.wasted == [0]
    assert "Sequence 0's row was wasted: it was aborted after this step was launched." in trace.explain(1)


def test_a_corrected_reason_is_told_in_the_step_of_the_last_token(trace):
    assert "Sequence 2 finished (length) and freed its blocks; its last token was still being" in trace.explain(5)
    assert "The last token of sequence 2, which ended for its length, proved to be one that ends it" in trace.explain(5)
    assert "its reason became eos" in trace.explain(5)


def test_a_sequence_ends_once_and_a_correction_says_so(trace):
    """Sequence 0 by eos in step 2, known in step 3; sequence 2 for its length, with a token that proved to be eos."""
    found = [(e.seq_id, e.step, e.reason, e.corrects) for e in endings(trace.events)]
    assert found == [(0, 3, "eos", False), (1, 5, "length", False), (2, 5, "length", False), (2, 6, "eos", True)]
    assert [ending.by_length for ending in endings(trace.events)] == [False, True, True, False]
    core = make_core(config(4, 8))
    aborted = core.start_trace()
    core.add(prompt(4), params(9))
    core.abort(0)
    (ending,) = endings(aborted.events)
    assert (ending.seq_id, ending.reason, ending.aborted, ending.corrects) == (0, "abort", True, False)


def test_a_decode_loop_that_left_out_no_live_sequence_says_nothing():
    """The batch was full, but the sequence left out had ended by then: there is none to name."""
    trace = Driver(26).run().trace
    full = [step for step in trace.steps if step.decode_stop.reason == "MAX_SEQS"]
    assert any("must wait" not in trace.explain(step.index) for step in full)
    assert not any("so  must" in trace.explain(step.index) for step in full)


def test_device_times_and_the_graph_are_told_where_they_are_known(trace):
    assert "Device" not in trace.explain(1)
    timed = run()
    timed.header.clock_unit = "seconds"
    timed.steps[1].timing |= {"launch": 0.0005, "gpu": 0.0042}
    timed.steps[1].graph_size = 8
    timed.steps[2].timing |= {"gpu": 0.0042}
    assert timed.explain(1).endswith(
        "Device: launched in 0.5 ms, computed in 4.2 ms, run by the CUDA graph for 8 rows (3 used)."
    )
    assert timed.explain(2).endswith("computed in 4.2 ms, run eagerly.")


def test_the_text_timeline_marks_wasted_rows_and_the_loop(trace):
    lines = list(text_timeline(trace))
    assert "0:6+1(wasted) 1:6+1" in lines[4]
    assert sum("wasted" in line for line in lines) == 1
    assert any(line.endswith("; overlapped") for line in summary(trace))
    assert any(line.startswith("wasted rows          1,") for line in summary(trace))
    assert not any("overlap" in line or "wasted" in line for line in summary(run(overlap=False)))


# ---- figures and tables -------------------------------------------------------------------


def test_wasted_rows_are_counted_and_their_tokens_are_not(trace):
    figures = trace.metrics()
    assert (figures["wasted_rows"], run(overlap=False).metrics()["wasted_rows"]) == (1, 0)
    assert figures["output_tokens"] == sum(len(output["token_ids"]) for output in trace.outputs) == 15
    assert [request["finish_reason"] for request in figures["requests"]] == ["eos", "length", "eos"]
    assert [request["latency"] for request in figures["requests"]] == [4, 7, 7]


def test_an_ending_in_the_step_in_flight_has_no_time_yet():
    core = make_core(config(4, 8, overlap=True))
    trace = core.start_trace()
    core.add(prompt(4), params(2))
    core.step()
    core.step()
    (ending,) = endings(trace.events)
    assert (len(trace.steps), ending.step, ending.reason) == (1, 1, "length")
    (request,) = trace.metrics()["requests"]
    assert (request["finish_reason"], request["latency"]) == (None, None)
    core.step()
    (request,) = trace.metrics()["requests"]
    assert request["finish_reason"] == "length"
    assert request["latency"] is not None


def test_tables_hold_wasted_rows_and_graph_sizes(trace):
    steps = trace.to_pandas()["steps"]
    assert list(steps["wasted_rows"]) == [0, 0, 0, 1, 0, 0]
    assert steps["graph_size"].isna().all()
    assert list(steps["wait_time"]) == [step.timing["wait"] for step in trace.steps]


def test_a_wasted_row_is_a_span_of_its_own_after_the_end(trace):
    spans = [tuple(span)[1:] for span in sequence_spans(trace) if span.seq_id == 0]
    assert spans == [("prefill", 0, 1, 4), ("decode", 1, 3, 2), ("finished", 2, 3, 0), ("wasted", 3, 4, 1)]
    assert [span.start for span in sequence_spans(trace) if (span.seq_id, span.kind) == (2, "finished")] == [5]


def test_spans_of_random_runs_cover_every_row_once_and_end_with_the_last_token():
    for seed in range(150):
        trace = Driver(seed).run().trace
        covered, ends = {}, {}
        for span in sequence_spans(trace):
            if span.kind in ("prefill", "decode", "wasted"):
                for i in range(span.start, span.end):
                    assert covered.setdefault((i, span.seq_id), span.kind) == span.kind, f"seed {seed}"
            if span.kind == "finished":
                assert span.seq_id not in ends, f"seed {seed}: two ends of sequence {span.seq_id}"
                ends[span.seq_id] = span.start
        rows = {(step.index, row.seq_id): row for step in trace.steps for row in step.rows}
        assert covered.keys() == rows.keys(), f"seed {seed}"
        assert {key for key, kind in covered.items() if kind == "wasted"} == {
            k for k, row in rows.items() if row.wasted
        }
        last = {seq_id: i for (i, seq_id), row in rows.items() if row.token_id is not None}
        for seq_id in {event.seq_id for event in trace.events if event.kind == "finish"}:
            assert ends[seq_id] == last[seq_id], f"seed {seed}"


def test_times_of_random_runs_never_go_back():
    """A token is known after its step was chosen, and not before the tokens of the step before."""
    for seed in range(60):
        trace = Driver(seed).run().trace
        ends = [step.clock + step.timing["duration"] for step in trace.steps]
        assert ends == sorted(ends)
        assert [step.clock for step in trace.steps] == sorted(step.clock for step in trace.steps)
        known = {e.seq_id for e in trace.events if e.kind == "finish"}
        for request in trace.metrics()["requests"]:
            if request["seq_id"] in known and request["finish_reason"] != "abort":
                assert request["latency"] >= request["ttft"] > 0


# ---- the fold ------------------------------------------------------------------------------


def test_dropping_any_event_of_an_overlapped_run_is_noticed():
    """But a correction of a reason, which changes no queue and no block."""
    for seed in range(25):
        run = Driver(seed).run()
        for position, event in enumerate(run.trace.events):
            if event.step >= len(run.trace.steps) or (event.data or {}).get("late") == "ended":
                continue
            events = run.trace.events[:position] + run.trace.events[position + 1 :]
            broken = Trace(run.trace.header, run.trace.requests, events, run.trace.steps)
            assert not folds(broken, run.states), f"seed {seed}: {event} was not missed"


def folds(trace, states):
    try:
        return all(vars(trace.state(i)) == states[i] for i in range(len(trace.steps)))
    except ValueError:
        return False


@pytest.mark.parametrize("late", ["ended", "waiting"])
def test_a_late_ending_of_a_sequence_that_still_runs_does_not_fold(late):
    trace = run()
    position = next(i for i, event in enumerate(trace.events) if event.kind == "finish")
    event = trace.events[position]
    trace.events[position] = event._replace(data={**event.data, "late": late})
    with pytest.raises(ValueError, match="does not fold"):
        trace.state(event.step)


# ---- files --------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [0.0, 0.1])
def test_random_overlapped_traces_round_trip_and_export(tmp_path, trouble):
    path = tmp_path / "t.jsonl"
    for seed in range(40):
        trace = Driver(seed, trouble).run().trace
        trace.save(path)
        assert Trace.load(path) == trace, f"seed {seed}"
        check(export(trace, tmp_path))


def test_a_trace_saved_with_a_step_in_flight_round_trips(tmp_path):
    core = make_core(config(4, 8, overlap=True))
    trace = core.start_trace()
    core.add(prompt(4), params(9))
    core.step()
    core.step()
    core.add(prompt(4, 1), params(9))
    assert [event.step for event in trace.events if event.kind == "arrive"] == [0, 2]
    assert len(trace.steps) == 1
    trace.save(tmp_path / "t.jsonl")
    loaded = Trace.load(tmp_path / "t.jsonl")
    assert loaded == trace
    assert vars(loaded.state(0)) == vars(trace.state(0))


def test_graph_sizes_round_trip(tmp_path):
    trace = run()
    trace.steps[2].graph_size = 4
    trace.save(tmp_path / "t.jsonl")
    loaded = Trace.load(tmp_path / "t.jsonl")
    assert [step.graph_size for step in loaded.steps] == [None, None, 4, None, None, None]
    assert loaded == trace
    loaded.steps[2].graph_size = 8
    assert loaded != trace


def test_a_trace_of_schema_version_1_can_be_read(tmp_path):
    """It knows no overlap; all else is as it was."""
    trace = run(overlap=False)
    path = tmp_path / "t.jsonl"
    trace.save(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["schema_version"] == SCHEMA_VERSION == 2
    lines[0]["schema_version"] = 1
    del lines[0]["config"]["overlap"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    old = Trace.load(path)
    assert old.config.overlap is None
    assert (old.steps, old.events, old.outputs) == (trace.steps, trace.events, trace.outputs)
    assert [old.explain(i) for i in range(len(old.steps))] == [trace.explain(i) for i in range(len(trace.steps))]
    assert {name: old.metrics()[name] for name in ("ttft", "latency", "wasted_rows")} == {
        name: trace.metrics()[name] for name in ("ttft", "latency", "wasted_rows")
    }


def test_perfetto_shows_launches_and_the_device_on_tracks_of_their_own(tmp_path):
    trace = run(cost_model=lambda plan: 0.01)
    for step in trace.steps:
        step.timing |= {"gpu": 0.008, "launch": 0.001}
        step.graph_size = 4
    events = export(trace, tmp_path)
    check(events)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = {name: [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == at] for at, name in names.items()}
    ends = [round((step.clock + step.timing["duration"]) * 1e6) for step in trace.steps]
    assert [e["ts"] + e["dur"] for e in slices["device"]] == ends
    assert {e["dur"] for e in slices["device"]} == {8000}
    assert [e["ts"] + e["dur"] for e in slices["steps"]] == ends
    starts = [round(step.clock * 1e6) for step in trace.steps]
    assert [(e["ts"], e["dur"]) for e in slices["schedule and launch"]][2:] == [(start, 1000) for start in starts[2:]]
    assert slices["steps"][3]["args"]["wasted"] == [0]
    assert slices["steps"][3]["args"]["graph size"] == 4
    plain = export(run(overlap=False), tmp_path)
    assert not {"device", "schedule and launch"} & {e["args"].get("name") for e in plain}


# ---- pictures -----------------------------------------------------------------------------


def test_the_timeline_draws_wasted_rows_hollow(trace):
    hollow = [c for c in trace.timeline().axes[-1].collections if c.get_gid() == "wasted"]
    assert len(hollow) == 1
    (path,) = hollow[0].get_paths()
    box = path.get_extents()
    assert (round(box.x0, 2), round(box.x1, 2)) == (2.5, 3.5)
    theme = get_theme("light")
    fill, line = theme.background, theme.decode
    assert hollow[0].get_facecolor().tolist() != hollow[0].get_edgecolor().tolist()
    assert fill != line
    texts = [text.get_text() for axes in trace.timeline().axes for text in axes.texts]
    assert any("wasted" in text for text in texts)
    plain = [text.get_text() for axes in run(overlap=False).timeline().axes for text in axes.texts]
    assert not any("wasted" in text for text in plain)


def test_the_budget_draws_wasted_tokens_hollow(trace):
    assert list(wasted_per_step(trace)) == [0, 0, 0, 1, 0, 0]
    drawn = {c.get_gid(): c for axes in trace.budget().axes for c in axes.collections}
    assert len(drawn["wasted"].get_paths()) == 1
    box = drawn["wasted"].get_paths()[0].get_extents()
    assert (box.y0, box.y1) == (2, 3), "the top one of three decode tokens"
    assert "wasted" not in {c.get_gid() for axes in run(overlap=False).budget().axes for c in axes.collections}
