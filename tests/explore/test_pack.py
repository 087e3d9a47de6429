"""The payload says what the trace says, step by step: the page's own code reads it, in Node."""

import json
import random

import pytest
from kit.helpers import config, limits, make_core, params, prompt, run_all
from kit.lazy_device import Driver
from kit.node import run_node
from kit.payloads import case, state_of, twins
from kit.workloads import drive

from nanoinfer import SamplingParams, simulate
from nanoinfer.explore.frames import Frames
from nanoinfer.explore.pack import Packer, pack
from nanoinfer.reasons import Stop
from nanoinfer.trace.spans import sequence_spans


def test_every_frame_has_a_headline_that_says_what_ran():
    """Behind arrivals, which come first; whatever the requests' reasons are called."""
    trace = simulate([prompt(4), prompt(4, 1)], params(4), arrivals=[0, 1], **limits(4, 16))
    trace.steps[0].stop = Stop("Step 9 (")
    cases = [case("arrivals", trace)]
    assert [step["headline"] for step in cases[0]["steps"].values()] == [1, 1, *[0] * (len(trace.steps) - 2)]
    cases += [case(f"seed {seed}", Driver(seed).run().trace) for seed in range(20)]
    run_node("payload.test.mjs", cases)


def test_random_recordings_are_told_step_by_step():
    """Warm engines, aborts, failing steps, prefix hits, preemptions, both policies."""
    seen = {"warm": 0, "abort": 0, "preempted": 0, "evict_hash": 0}
    cases = []
    for seed in range(120):
        trace, _ = drive(seed, trouble=0.05)
        cases.append(case(f"seed {seed}", trace))
        kinds = {event.kind for event in trace.events}
        seen["warm"] += bool(trace.header.initial.block_tables)
        seen["abort"] += "abort" in kinds
        seen["evict_hash"] += "evict_hash" in kinds
        seen["preempted"] += any(step.preempted for step in trace.steps)
    assert min(seen.values()) >= 5, f"these runs do not show everything: {seen}"
    run_node("payload.test.mjs", cases)


def test_a_growing_recording_can_be_packed_in_chunks():
    """What a live view receives, a chunk at a time, is what it would have got at once."""
    cases = []
    for seed in range(60):
        trace, _ = drive(seed)
        if not trace.steps:
            continue
        rng, packer, whole = random.Random(seed), Packer(trace), pack(trace)
        steps, events = trace.steps, trace.events
        payload, end = packer.header(), 0
        while end < len(steps):
            end = min(end + rng.randint(1, 7), len(steps))
            trace.steps, trace.events = steps[:end], [event for event in events if event.step < end]
            payload["chunks"].append(packer.chunk())
        cases.append(twins(f"seed {seed}", payload, whole))
    run_node("payload.test.mjs", cases)


def test_overlapped_recordings_are_told_step_by_step():
    cases, wasted = [], 0
    for seed in range(80):
        trace = Driver(seed).run().trace
        cases.append(case(f"seed {seed}", trace))
        wasted += trace.metrics()["wasted_rows"]
    assert wasted > 20
    run_node("payload.test.mjs", cases)


def test_an_overlapped_recording_that_grows_is_packed_as_it_is_in_the_end():
    """Each step is packed when it is recorded; what its tokens ended stands among the events by then."""
    cases = []
    for seed in range(80):
        work, packers, payloads = Driver(seed).work, [], []

        def on_step(trace, _i, packers=packers, payloads=payloads):
            if not packers:
                packers.append(Packer(trace))
                payloads.append(packers[0].header())
            payloads[0]["chunks"].append(packers[0].chunk())

        settings = {f: getattr(work.config, f) for f in ("kvcache_block_size", "max_num_seqs", "policy")}
        settings |= {f: getattr(work.config, f) for f in ("num_kvcache_blocks", "max_num_batched_tokens", "eos")}
        settings["max_model_len"] = work.config.max_model_len
        trace = simulate(
            work.prompts, work.params, work.token, arrivals=work.arrivals, on_step=on_step, overlap=True, **settings
        )
        cases.append(twins(f"seed {seed}", payloads[0], pack(trace)))
    run_node("payload.test.mjs", cases)


def test_requests_are_told_with_text_and_ids():
    trace = simulate([prompt(5), prompt(4, 1)], params(3), **limits(4, 16))
    trace.requests[0].prompt = "caf\u00e9 <img src=x>"
    trace.outputs[0]["text"] = "a\nb"
    told = {
        i: {
            "id": i,
            "arrival": 0,
            "prompt_tokens": len(ids),
            "prompt": "caf\u00e9 <img src=x>" if i == 0 else None,
            "output": "a\nb" if i == 0 else None,
            "promptIds": ids,
            "sampleIds": trace.outputs[i]["token_ids"],
            "sampleFirst": len(ids),
            "samples": 3,
        }
        for i, ids in enumerate((prompt(5), prompt(4, 1)))
    }
    run_node("payload.test.mjs", [case("text and ids", trace) | {"sequences": told}])


def test_many_token_ids_are_cut_and_their_number_is_kept(monkeypatch):
    monkeypatch.setattr("nanoinfer.explore.pack.MOST_IDS", 10)
    monkeypatch.setattr("nanoinfer.explore.pack.MOST_TEXT", 40)
    trace = simulate([prompt(9), prompt(8, 1)], params(12), **limits(4, 32))
    trace.requests[0].prompt = "x" * 1000
    told = {
        i: {
            "id": i,
            "arrival": 0,
            "prompt_tokens": len(ids),
            "prompt": "x" * 10 + "\u2026 (990 more characters)" if i == 0 else None,
            "output": None,
            "promptIds": ids[:5],
            "sampleIds": trace.outputs[i]["token_ids"][:5],
            "sampleFirst": len(ids),
            "samples": 12,
        }
        for i, ids in enumerate((prompt(9), prompt(8, 1)))
    }
    run_node(
        "payload.test.mjs", [{"name": "cut", "payload": pack(trace), "frames": len(trace.steps), "sequences": told}]
    )


# ---- marks ---------------------------------------------------------------------------------


def test_marks_name_preemptions_hits_and_every_refusal():
    trace = simulate([prompt(4), prompt(14, 1), prompt(2, 2)], [params(6), params(1), params(1)], **limits(4, 4))
    refused = [step.index for step in trace.steps if step.stop.reason == "NO_BLOCKS"]
    assert refused[:4] == [0, 1, 2, 3]
    hits = simulate([prompt(9), prompt(9)], params(1), arrivals=[0, 1], **limits(4, 16))
    cases = [
        case("refusals", trace) | {"marks": {"refusal": refused, "hit": [], "preemption": []}},
        case("a hit", hits) | {"marks": {"refusal": [], "hit": [1], "preemption": []}},
    ]
    run_node("payload.test.mjs", cases)


# ---- tours -----------------------------------------------------------------------------------


def test_a_tour_is_stored_with_its_steps_counted_from_the_start():
    trace = simulate([prompt(4)], params(5), **limits(4, 16))
    meta = pack(trace, [(-1, None, "the end"), (0, 0, "the start")])["meta"]
    assert meta["tour"] == [
        {"step": 4, "select": None, "caption": "the end"},
        {"step": 0, "select": 0, "caption": "the start"},
    ]


@pytest.mark.parametrize(
    ("tour", "message"),
    [([(0, 0, "fine"), (9, None, "x")], "bookmark 2.*step 9.*5 steps"), ([(0, 7, "x")], "bookmark 1.*no sequence 7")],
)
def test_a_bookmark_that_leads_nowhere_is_refused(tour, message):
    trace = simulate([prompt(4)], params(5), **limits(4, 16))
    with pytest.raises(ValueError, match=message):
        pack(trace, tour)


# ---- numbers that are large ---------------------------------------------------------------------


def test_blocks_beyond_32767_do_not_overflow():
    trace = simulate([prompt(40_000), prompt(3, 50)], params(2), kvcache_block_size=1, max_model_len=50_000)
    assert trace.config.num_kvcache_blocks > 40_000
    assert max(trace.state(0).block_tables[0]) == 39_999
    run_node("payload.test.mjs", [case("many blocks", trace)])


@pytest.mark.slow
def test_steps_beyond_32767_do_not_overflow():
    trace = simulate([prompt(3)], params(33_500), kvcache_block_size=256, max_model_len=40_000)
    told = case("many steps", trace, pack(trace, most_frames=40_000), every=33_499)
    assert told["frames"] == 33_500
    assert [0, "decode", 1, 33_499, 33_499] in told["spans"]
    run_node("payload.test.mjs", [told])


# ---- frames of several steps ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_run():
    rng = random.Random(4)
    prompts = [prompt(rng.randint(4, 40), i % 5) for i in range(40)]
    return simulate(
        prompts,
        [SamplingParams(max_tokens=rng.randint(10, 60)) for _ in prompts],
        arrivals=[12 * i for i in range(40)],
        **limits(4, 40, B=24, M=6),
    )


def test_buckets_show_the_state_after_their_last_step(long_run):
    payload = pack(long_run, most_frames=50)
    size = payload["meta"]["steps_per_frame"]
    assert size == -(-len(long_run.steps) // 50)
    frames = Frames(len(long_run.steps), size)
    assert frames.count <= 50
    states = {frame: state_of(long_run, frames.end_step(frame) - 1) for frame in range(frames.count)}
    run_node("payload.test.mjs", [{"name": "buckets", "payload": payload, "frames": frames.count, "states": states}])


def test_a_bucket_shows_its_fullest_step_and_all_its_preemptions(long_run):
    payload = pack(long_run, most_frames=50)
    size = payload["meta"]["steps_per_frame"]
    assert any(step.preempted for step in long_run.steps)
    buckets = []
    for first in range(0, len(long_run.steps), size):
        steps = long_run.steps[first : first + size]
        buckets.append(
            {
                "batched": [step.num_batched_tokens for step in steps],
                "preempted": sum(len(step.preempted) for step in steps),
                "words": f"Steps {first} to {steps[-1].index} as one frame.",
            }
        )
    run_node("buckets.test.mjs", {"payload": payload, "buckets": buckets})


def test_no_bar_is_lost_in_buckets(long_run):
    spans = [[span.seq_id, span.kind, span.start, span.end] for span in sequence_spans(long_run)]
    run_node("buckets.test.mjs", {"payload": pack(long_run, most_frames=50), "spans": spans})


def test_a_trace_without_steps_can_be_packed():
    run_node("payload.test.mjs", [case("no steps", simulate([]))])


def test_a_warm_engine_starts_from_its_state():
    core = make_core(config(4, 8))
    core.add(prompt(5), params(4))
    core.step()
    trace = core.start_trace()
    core.add(prompt(5, 1), params(2))
    run_all(core)
    payload = pack(core.stop_trace())
    assert payload["meta"]["initial"]["running"] == [0]
    run_node("payload.test.mjs", [case("warm", trace, payload)])


@pytest.mark.slow
def test_the_payload_of_a_long_run_stays_small():
    """About 10,000 steps, 256 sequences and 4,096 blocks: below 5 MB, and not by leaving anything out."""
    rng = random.Random(1)
    heads = [[rng.randrange(50_000) for _ in range(400)] for _ in range(4)]
    prompts = [
        (heads[i % 4] if i % 2 else []) + [rng.randrange(50_000) for _ in range(rng.randint(100, 1800))]
        for i in range(256)
    ]
    trace = simulate(
        prompts,
        [SamplingParams(max_tokens=rng.randint(300, 2000)) for _ in prompts],
        arrivals=[i * 24 for i in range(256)],
        kvcache_block_size=16,
        num_kvcache_blocks=4096,
        max_num_batched_tokens=512,
        max_num_seqs=64,
        max_model_len=8192,
    )
    assert len(trace.steps) > 9_000
    payload = pack(trace)
    assert len(json.dumps(payload)) < 5_000_000
    told = case("long", trace, payload, every=1117)
    del told["rows"]  # the token ids of so many steps are cut
    run_node("payload.test.mjs", [told])
