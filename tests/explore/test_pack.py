"""The payload says what the trace says: read by a decoder of its own, step by step."""

import json
import random

import pytest
from kit.helpers import config, limits, make_core, params, prompt, run_all
from kit.lazy_device import Driver
from kit.payloads import columns_of, unpack
from kit.workloads import drive

from nanoinfer import SamplingParams, simulate
from nanoinfer.explore.frames import Frames
from nanoinfer.explore.pack import Packer, pack
from nanoinfer.trace.spans import KINDS, sequence_spans

CHANGES = ("allocate", "reuse", "share", "release", "evict_hash")


def assert_says_what_the_trace_says(trace, unpacked):
    assert len(unpacked.states) == len(trace.steps)
    for i, step in enumerate(trace.steps):
        state, told = trace.state(i), unpacked.states[i]
        assert (told.waiting, told.running) == (state.waiting, state.running), f"queues after step {i}"
        assert told.tables == state.block_tables, f"tables after step {i}"
        assert told.findable == set(state.hash_index.values()), f"prefix cache after step {i}"
        assert told.used == sum(count > 0 for count in state.ref_counts), f"use after step {i}"
        phase, stop, decode_stop, sentence, prefill, decode, wasted, offset = unpacked.frames[i]
        assert (phase, stop, decode_stop) == (step.phase, str(step.stop), str(step.decode_stop))
        assert sentence == trace.explain(i)
        assert wasted == len(step.columns.wasted)
        assert (prefill + decode, decode, offset) == (step.num_batched_tokens, step.columns.chunk.count(None), 0)
        assert_moves(trace, i, unpacked)
    assert_bars(trace, unpacked)


def assert_moves(trace, i, unpacked):
    events = [event for event in trace.events if event.step == i]
    assert unpacked.arrived[i] == [e.seq_id for e in events if e.kind == "arrive"]
    assert [seq_id for seq_id, _ in unpacked.ended[i]] == [e.seq_id for e in events if e.kind in ("finish", "abort")]
    assert unpacked.changed[i] == {e.block_id for e in events if e.kind in CHANGES}
    records = [(p.victim, p.on_behalf_of, p.blocks, p.tokens, p.rule == "self") for p in trace.steps[i].preempted]
    assert unpacked.preempted[i] == records


def assert_bars(trace, unpacked):
    """The bars are the spans, and the rows of every step can be read off them."""
    spans = [(s.seq_id, KINDS.index(s.kind), s.start, s.end - s.start, s.tokens) for s in sequence_spans(trace)]
    assert [bar[:5] for bar in sorted(unpacked.bars)] == sorted(spans)
    rows = {}
    for seq_id, kind, start, length, tokens, computed, chunk, chunks, _ in unpacked.bars:
        if KINDS[kind] == "prefill":
            rows[start, seq_id] = (computed, tokens, (chunk, chunks))
        elif KINDS[kind] in ("decode", "wasted"):
            rows |= {(start + n, seq_id): (computed + n, 1, None) for n in range(length)}
    expected = {}
    for i, step in enumerate(trace.steps):
        c = step.columns
        for seq_id, computed, scheduled, chunk, token in zip(
            c.seq_id, c.num_computed, c.num_scheduled, c.chunk, c.token_id, strict=True
        ):
            expected[i, seq_id] = (computed, scheduled, chunk)
            if token is not None:
                first, ids = unpacked.samples[seq_id]
                assert ids[computed + scheduled - first] == token
    assert rows == expected


def test_random_recordings_are_told_step_by_step():
    """Warm engines, aborts, failing steps, prefix hits, preemptions, both policies."""
    seen = {"warm": 0, "abort": 0, "preempted": 0, "evict_hash": 0}
    for seed in range(120):
        trace, _ = drive(seed, trouble=0.05)
        assert_says_what_the_trace_says(trace, unpack(pack(trace)))
        kinds = {event.kind for event in trace.events}
        seen["warm"] += bool(trace.header.initial.block_tables)
        seen["abort"] += "abort" in kinds
        seen["evict_hash"] += "evict_hash" in kinds
        seen["preempted"] += any(step.preempted for step in trace.steps)
    assert min(seen.values()) >= 5, f"these runs do not show everything: {seen}"


def test_a_growing_recording_can_be_packed_in_chunks():
    """What a live view receives, a chunk at a time, is what it would have got at once."""
    for seed in range(60):
        trace, _ = drive(seed)
        if not trace.steps:
            continue
        rng, packer, whole = random.Random(seed), Packer(trace), unpack(pack(trace))
        steps, events = trace.steps, trace.events
        payload, end = packer.header(), 0
        while end < len(steps):
            end = min(end + rng.randint(1, 7), len(steps))
            trace.steps, trace.events = steps[:end], [event for event in events if event.step < end]
            payload["chunks"].append(packer.chunk())
        grown = unpack(payload)
        for name in ("states", "frames", "bars", "marks", "samples", "arrived", "ended", "changed", "preempted"):
            assert getattr(grown, name) == getattr(whole, name), f"{name} of seed {seed}"


def test_overlapped_recordings_are_told_step_by_step():
    wasted = 0
    for seed in range(80):
        trace = Driver(seed).run().trace
        assert_says_what_the_trace_says(trace, unpack(pack(trace)))
        wasted += trace.metrics()["wasted_rows"]
    assert wasted > 20


def test_an_overlapped_recording_that_grows_is_packed_as_it_is_in_the_end():
    """Each step is packed when it is recorded; what its tokens ended stands among the events by then."""
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
        grown, whole = unpack(payloads[0]), unpack(pack(trace))
        for name in ("states", "frames", "bars", "marks", "samples", "arrived", "ended", "changed", "preempted"):
            assert getattr(grown, name) == getattr(whole, name), f"{name} of seed {seed}"


def test_requests_are_told_with_text_and_ids():
    trace = simulate([prompt(5), prompt(4, 1)], params(3), **limits(4, 16))
    trace.requests[0].prompt = "caf\u00e9 <img src=x>"
    trace.outputs[0]["text"] = "a\nb"
    told = unpack(pack(trace))
    assert told.sequences[0] == {
        "id": 0,
        "arrival": 0,
        "prompt_tokens": 5,
        "prompt": "caf\u00e9 <img src=x>",
        "output": "a\nb",
    }
    assert told.sequences[1]["prompt"] is None
    columns = columns_of(pack(trace)["chunks"][0])
    assert columns["prompt_ids"] == prompt(5) + prompt(4, 1)
    assert told.samples[1][1] == trace.outputs[1]["token_ids"]


def test_many_token_ids_are_cut_and_their_number_is_kept(monkeypatch):
    monkeypatch.setattr("nanoinfer.explore.sequences.MOST_IDS", 10)
    monkeypatch.setattr("nanoinfer.explore.sequences.MOST_TEXT", 40)
    trace = simulate([prompt(9), prompt(8, 1)], params(12), **limits(4, 32))
    trace.requests[0].prompt = "x" * 1000
    columns = columns_of(pack(trace)["chunks"][0])
    assert (columns["prompt_count"], columns["sample_count"]) == ([5, 5], [5, 5])
    assert columns["sample_total"] == [12, 12]
    assert columns["sequences"][0]["prompt"] == "x" * 10 + "\u2026 (990 more characters)"


# ---- marks ---------------------------------------------------------------------------------


def test_marks_name_preemptions_hits_and_every_refusal():
    trace = simulate([prompt(4), prompt(14, 1), prompt(2, 2)], [params(6), params(1), params(1)], **limits(4, 4))
    refused = [step.index for step in trace.steps if step.stop.reason == "NO_BLOCKS"]
    assert refused[:4] == [0, 1, 2, 3]
    marks = unpack(pack(trace)).marks
    assert marks["refusal"] == refused
    assert marks["hit"] == marks["preemption"] == []
    hits = simulate([prompt(9), prompt(9)], params(1), arrivals=[0, 1], **limits(4, 16))
    assert unpack(pack(hits)).marks["hit"] == [1]


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
    told = unpack(pack(trace))
    assert max(told.states[0].tables[0]) == 39_999
    assert told.states[0].tables == trace.state(0).block_tables
    assert told.states[-1].findable == set(trace.state(-1).hash_index.values())


@pytest.mark.slow
def test_steps_beyond_32767_do_not_overflow():
    trace = simulate([prompt(3)], params(33_500), kvcache_block_size=256, max_model_len=40_000)
    told = unpack(pack(trace, most_frames=40_000))
    assert len(told.frames) == 33_500
    assert told.frames[-1][3] == trace.explain(33_499)
    decode = next(bar for bar in told.bars if KINDS[bar[1]] == "decode")
    assert (decode[2], decode[3]) == (1, 33_499)


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
    told = unpack(pack(long_run, most_frames=50))
    size = told.meta["steps_per_frame"]
    assert size == -(-len(long_run.steps) // 50)
    frames = Frames(len(long_run.steps), size)
    assert len(told.states) == frames.count <= 50
    for frame, state in enumerate(told.states):
        expected = long_run.state(frames.end_step(frame) - 1)
        assert (state.waiting, state.running) == (expected.waiting, expected.running)
        assert state.tables == expected.block_tables
        assert state.findable == set(expected.hash_index.values())


def test_a_bucket_shows_its_fullest_step_and_all_its_preemptions(long_run):
    told = unpack(pack(long_run, most_frames=50))
    size = told.meta["steps_per_frame"]
    assert sum(len(step.preempted) for step in long_run.steps) == sum(map(len, told.preempted)) > 0
    for frame, (_, _, _, sentence, prefill, decode, _, offset) in enumerate(told.frames):
        steps = long_run.steps[frame * size : (frame + 1) * size]
        assert prefill + decode == max(step.num_batched_tokens for step in steps)
        assert steps[offset].num_batched_tokens == prefill + decode
        assert f"Steps {steps[0].index} to {steps[-1].index}" in sentence


def test_no_bar_is_lost_in_buckets(long_run):
    told = unpack(pack(long_run, most_frames=50))
    size = told.meta["steps_per_frame"]
    bars = {}
    for seq_id, kind, start, length, *_ in told.bars:
        bars.setdefault((seq_id, KINDS[kind]), set()).update(range(start, start + length))
    for span in sequence_spans(long_run):
        covered = {step // size for step in range(span.start, span.end)}
        assert covered <= bars[span.seq_id, span.kind], span
    spans = [span for span in sequence_spans(long_run) if span.kind == "preempted"]
    assert sum(bar[-1] for bar in told.bars if KINDS[bar[1]] == "preempted") == len(spans)


def test_a_trace_without_steps_can_be_packed():
    payload = pack(simulate([]))
    assert unpack(payload).states == []


def test_a_warm_engine_starts_from_its_state():
    core = make_core(config(4, 8))
    core.add(prompt(5), params(4))
    core.step()
    trace = core.start_trace()
    core.add(prompt(5, 1), params(2))
    run_all(core)
    payload = pack(core.stop_trace())
    assert payload["meta"]["initial"]["running"] == [0]
    assert_says_what_the_trace_says(trace, unpack(payload))


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
    told = unpack(payload)
    for i in range(0, len(trace.steps), 1117):
        assert told.frames[i][3] == trace.explain(i)
        assert told.states[i].tables == trace.state(i).block_tables
