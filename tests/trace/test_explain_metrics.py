"""What a trace says about itself in words, figures and tables, against numbers worked out by hand."""

import random
import re

import numpy as np
import pandas as pd
import pytest
from kit.helpers import config, limits, make_core, params, prompt, run_all
from kit.lazy_device import Driver
from kit.workloads import drive

from nanoinfer import simulate
from nanoinfer.trace.explain import explanation
from nanoinfer.trace.metrics import summary
from nanoinfer.trace.state import NO_HASH
from nanoinfer.trace.usage import usage

# ---- words --------------------------------------------------------------------------------


def says(trace, i, *fragments):
    """All fragments stand in the explanation of step i, in this order."""
    text = trace.explain(i)
    position = 0
    for fragment in fragments:
        found = re.search(fragment, text[position:])
        assert found, f"{fragment!r} is not said (in this place) in step {i}:\n{text}"
        position += found.end()
    return text


def test_a_prefill_names_its_tokens_and_the_budget():
    trace = simulate([prompt(6), prompt(7, 1), prompt(5, 2)], params(3), **limits(4, 32, B=16, M=3))
    says(trace, 0, "Step 0", "prefill", "13 of 16", "sequence 0", "tokens 0 to 5", "sequence 1", "tokens 0 to 6")


def test_chunk_not_allowed_is_told_with_need_and_remainder():
    trace = simulate([prompt(6), prompt(7, 1), prompt(5, 2)], params(3), **limits(4, 32, B=16, M=3))
    says(trace, 0, "sequence 2", "needs 5 tokens", "3 were left", "only the first sequence of a batch may be cut")


def test_queue_empty_and_the_decode_that_follows():
    trace = simulate([prompt(6)], params(3), **limits(4, 32))
    says(trace, 0, "Nobody else was waiting")
    says(trace, 1, "decode", "1 of 64", "sequence 0 decodes one token")


def test_max_seqs_is_told_with_the_limit_for_admission_and_for_decode():
    trace = simulate([prompt(3, i) for i in range(3)], params(4), **limits(4, 16, M=2))
    says(trace, 0, "full at 2 sequences", "sequence 2 must wait")
    says(trace, 2, "sequences 0 and 1 decode one token each", "full at 2 sequences", "sequence 2 must wait")


def test_token_budget_is_told_with_both_numbers_and_who_waits():
    trace = simulate([prompt(10), prompt(5, 1)], params(2), **limits(4, 16, B=8))
    says(trace, 0, "tokens 0 to 7", "chunk 1 of 2", r"budget was used up \(8 of 8\)", "the rest of sequence 0")
    says(trace, 1, "tokens 8 to 9", "chunk 2 of 2", "sequence 1", "tokens 0 to 4", "Nobody else was waiting")


def test_the_dropped_sample_of_a_middle_chunk_is_told():
    trace = simulate([prompt(10)], params(2), **limits(4, 16, B=8))
    says(trace, 0, "sample of sequence 0 is dropped")
    assert "dropped" not in trace.explain(1)


def test_no_blocks_is_told_with_need_and_free_and_who_stands_behind():
    trace = simulate([prompt(4), prompt(14, 1), prompt(2, 2)], [params(6), params(1), params(1)], **limits(4, 4))
    says(trace, 1, "Admission stopped at sequence 1", "needs 4 free blocks", "3 are free", "first come, first served")
    says(trace, 2, "Admission stopped at sequence 1", "needs 4 free blocks", "2 are free")
    says(trace, 6, "sequence 1 prefills tokens 0 to 13", "at sequence 2", "needs 1 free block", "0 are free")


def test_phase_exclusive_is_told_to_those_who_could_have_decoded():
    trace = simulate([prompt(4), prompt(4, 1)], params(4), arrivals=[0, 1], **limits(4, 16))
    says(trace, 1, "Sequence 1 arrived", "prefill batch was chosen", "sequence 0 did not decode")
    assert "did not decode" not in trace.explain(0)


def test_a_preemption_on_behalf_of_another_is_told_with_its_cost():
    trace = simulate([prompt(n, i) for i, n in enumerate((7, 5, 6))], params(6), **limits(4, 6))
    says(
        trace,
        2,
        "sequences 0 and 1 decode",
        "Sequence 0 needed a block",
        "sequence 2",
        "tail of running",
        "2 blocks",
        "7 tokens",
    )
    says(trace, 6, "sequence 2 prefills tokens 0 to 7", "[Ss]equence 2 comes back after a preemption")


def test_a_self_preemption_is_told_as_such():
    trace = simulate([prompt(8), prompt(8, 1)], params(5), **limits(4, 5))
    says(trace, 1, "Sequence 1 needed a block", "preempted itself", "2 blocks", "8 tokens")


def test_a_mixed_step_that_preempted_says_that_it_admits_nobody():
    trace = simulate([prompt(n, i) for i, n in enumerate((7, 5, 6))], params(6), policy="mixed", **limits(4, 6))
    step = next(step for step in trace.steps if step.preempted)
    says(trace, step.index, "preempted", "admits none")


@pytest.mark.parametrize(("last", "reason"), [(3, "eos"), (9, "stop"), (7, "length")], ids=lambda value: str(value))
def test_a_finish_is_told_with_its_reason(last, reason):
    trace = simulate(
        [prompt(4)], params(1, ignore_eos=False, stop_token_ids=[9]), token_fn=lambda ids: last, eos=3, **limits(4, 4)
    )
    says(trace, 0, rf"Sequence 0 finished \({reason}\)")


def test_an_abort_is_told_in_the_step_that_follows_it():
    core = make_core(config(4, 8))
    trace = core.start_trace()
    for tag in (0, 1):
        core.add(prompt(4, tag), params(5))
    core.step()
    core.abort(0)
    core.step()
    says(trace, 1, "sequence 1 decodes one token", "Sequence 0 was aborted")
    assert "aborted" not in trace.explain(0)


def test_a_lookup_that_ends_at_the_last_block_is_told():
    trace = simulate([prompt(9), prompt(9)], params(1), arrivals=[0, 5], **limits(4, 8))
    says(trace, 1, "token 8", "held 8 tokens of sequence 1", "last token is always computed")


def test_a_lookup_that_ends_at_a_block_never_cached_is_told():
    trace = simulate([prompt(9), [*prompt(4), *prompt(8, 1)]], params(1), arrivals=[0, 5], **limits(4, 8))
    says(trace, 1, "held 4 tokens of sequence 1", "next block was never cached")


def test_a_lookup_that_ends_at_an_evicted_block_names_the_step_of_the_eviction():
    """P(9), Q(9), P(9) in three blocks: the first block of P went at step 1."""
    trace = simulate([prompt(9), prompt(9, 1), prompt(9)], params(1), arrivals=[0, 1, 2], **limits(4, 3))
    says(trace, 2, "held 0 tokens of sequence 2", "evicted at step 1")


def test_explanations_hold_the_numbers_of_every_stop_in_random_runs():
    """Each operand is in the text, and no explanation fails."""
    reasons = set()
    for seed in range(150):
        trace, _ = drive(seed, trouble=0.05 * (seed % 3 == 0))
        for step in trace.steps:
            text = trace.explain(step.index)
            assert f"Step {step.index} " in text
            assert str(step.num_batched_tokens) in text
            reasons.add(step.stop.reason)
            if step.stop.reason in ("NO_BLOCKS", "CHUNK_NOT_ALLOWED", "TOKEN_BUDGET"):
                numbers = re.findall(r"\d+", text)
                assert all(str(value) in numbers for value in step.stop.operands.values()), text
            for record in step.preempted:
                assert re.search(rf"[Ss]equence {record.victim}\b", text)
                assert re.search(rf"\b{record.tokens} tokens?\b", text)
                assert re.search(rf"\b{record.blocks} blocks?\b", text)
    assert reasons == {
        "QUEUE_EMPTY",
        "MAX_SEQS",
        "TOKEN_BUDGET",
        "NO_BLOCKS",
        "CHUNK_NOT_ALLOWED",
        "PREEMPTED_THIS_STEP",
    }


def test_the_head_that_the_sentence_names_is_the_head_that_stopped_admission():
    """On random runs of the default policy: the first in `waiting` behind this step's rows."""
    checked = 0
    for seed in range(200):
        trace, states = drive(seed)
        for step, after in zip(trace.steps, states, strict=True):
            if step.stop.reason in ("NO_BLOCKS", "CHUNK_NOT_ALLOWED"):
                ended = [e for e in trace.events if e.kind == "abort" and e.step == step.index]
                if ended or trace.config.policy != "prefill_first":
                    continue
                victims = {record.victim for record in step.preempted}
                head = next(seq_id for seq_id in after["waiting"] if seq_id not in victims)
                assert f"Admission stopped at sequence {head}:" in trace.explain(step.index)
                checked += 1
    assert checked > 50


def test_a_negative_step_counts_from_the_end_and_a_wrong_one_is_an_index_error():
    trace = simulate([prompt(4)], params(3), **limits(4, 4))
    assert trace.explain(-1) == trace.explain(2)
    with pytest.raises(IndexError, match="3 steps"):
        trace.explain(3)


def test_stops_read_as_reason_and_operands():
    trace = simulate([prompt(4), prompt(14, 1)], [params(6), params(1)], **limits(4, 4))
    assert str(trace.steps[0].stop) == "NO_BLOCKS needed=4 free=3"
    assert trace.steps[0].stop.operands == {"needed": 4, "free": 3}


# ---- figures ------------------------------------------------------------------------------


@pytest.fixture
def timed():
    """A(5) gives 3 tokens and B(9), submitted at 1, gives 2; a step costs a second per token.

    step  clock  rows            ends
       0      0  A prefills 5       5   A's token 1
       1      5  B prefills 9      14   B's token 1
       2     14  A and B decode    16   A's token 2, B's token 2: B ends
       3     16  A decodes         17   A's token 3: A ends
    """
    return simulate(
        [prompt(5), prompt(9, 1)],
        [params(3), params(2)],
        arrivals=[0, 1],
        cost_model=lambda plan: float(plan.num_batched_tokens),
        **limits(4, 8),
    )


def test_clock_and_timing_of_each_step(timed):
    assert [step.clock for step in timed.steps] == [0, 5, 14, 16]
    assert [step.timing["duration"] for step in timed.steps] == [5, 9, 2, 1]
    for step in timed.steps:
        assert sum(step.timing[part] for part in ("schedule", "run", "postprocess")) == step.timing["duration"]
    assert timed.header.clock_unit == "seconds"


@pytest.mark.parametrize("table", ["rows", "events", "requests"])
def test_tables_can_be_written_as_parquet(timed, table, tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.parquet"
    told = timed.to_pandas()[table]
    told.to_parquet(path)
    read = pd.read_parquet(path)
    assert (list(read), read["seq_id"].tolist()) == (list(told), told["seq_id"].tolist())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 10, 11, 100, 101, 1000])
def test_percentiles_are_those_of_numpy(count):
    rng = random.Random(count)
    for scale in (1e-6, 1, 1e9):
        values = [rng.choice((rng.random(), rng.random() ** 9, 0.0)) * scale for _ in range(count)]
        figures = summary([*values, None])
        expected = np.percentile(values, [50, 90, 99]).tolist()
        assert [figures[name] for name in ("p50", "p90", "p99")] == pytest.approx(expected, rel=1e-12, abs=0)
        assert figures["mean"] == pytest.approx(np.mean(values), rel=1e-12, abs=0)
        assert figures["max"] == max(values)


def test_a_summary_of_nothing_known_is_none():
    assert summary([None, None]) is summary([]) is None


def test_time_to_first_token_queue_time_and_latency(timed):
    """B waits from its submission at 1 until 5, although the engine was in the middle of a step."""
    a, b = timed.metrics()["requests"]
    assert (a["arrival"], a["queue_time"], a["ttft"], a["latency"]) == (0, 0, 5, 17)
    assert (b["arrival"], b["queue_time"], b["ttft"], b["latency"]) == (1, 4, 13, 15)
    figures = timed.metrics()
    assert figures["ttft"] == {"mean": 9, "p50": 9, "p90": pytest.approx(12.2), "p99": pytest.approx(12.92), "max": 13}
    assert (figures["queue_time"]["mean"], figures["queue_time"]["max"]) == (2, 4)
    assert (figures["latency"]["mean"], figures["latency"]["p50"]) == (16, 16)


def test_inter_token_latency_and_throughput(timed):
    """A's gaps are 11 and 1, B's is 2."""
    figures = timed.metrics()
    itl = figures["inter_token_latency"]
    assert (itl["mean"], itl["p50"], itl["max"]) == (pytest.approx(14 / 3), 2, 11)
    assert (figures["duration"], figures["output_tokens"], figures["prompt_tokens"]) == (17, 5, 14)
    assert figures["output_tokens_per_clock_unit"] == pytest.approx(5 / 17)
    assert (figures["num_requests"], figures["num_steps"]) == (2, 4)


def test_kv_blocks_and_kv_slots_are_different_numbers(timed):
    """Blocks held after each step: 2, 5, 2, 0 of 8; slots filled: 5, 14, 6, 0 of 32."""
    figures = timed.metrics()
    assert figures["kv_block_use"]["mean"] == pytest.approx(9 / 4 / 8)
    assert figures["kv_block_use"]["max"] == 5 / 8
    assert figures["kv_slot_use"]["mean"] == pytest.approx(25 / 4 / 32)
    assert figures["kv_slot_use"]["max"] == 14 / 32


def test_prefix_hit_rate_counts_tokens_looked_up_and_found():
    trace = simulate([prompt(9), prompt(9), prompt(5, 1)], params(1), arrivals=[0, 5, 9], **limits(4, 8))
    figures = trace.metrics()
    assert figures["prefix_hit_rate"] == pytest.approx(8 / 23)
    assert [request["num_cached_tokens"] for request in figures["requests"]] == [0, 8, 0]
    assert figures["recomputed_tokens"] == 0


def test_re_admissions_count_in_the_hit_rate_and_cached_tokens_are_not_recomputed():
    """B is preempted with 8 computed tokens; all 8 are found again, of the 9 it then has."""
    figures = simulate([prompt(8), prompt(8, 1)], params(5), **limits(4, 5)).metrics()
    assert figures["prefix_hit_rate"] == pytest.approx(8 / (8 + 8 + 9))
    assert (figures["num_preemptions"], figures["recomputed_tokens"]) == (1, 0)


def test_recomputed_tokens_are_those_that_a_preemption_lost():
    """Without a prefix cache all 8 must be computed again."""
    figures = simulate([prompt(8), prompt(8, 1)], params(5), enable_prefix_caching=False, **limits(4, 5)).metrics()
    assert (figures["num_preemptions"], figures["recomputed_tokens"]) == (1, 8)
    assert [request["num_recomputed_tokens"] for request in figures["requests"]] == [0, 8]


def test_a_preempted_request_keeps_the_time_of_its_first_token():
    """B50: and the preemption is one long gap between two tokens."""
    trace = simulate([prompt(8), prompt(8, 1)], params(5), **limits(4, 5))
    back = next(step.index for step in trace.steps if step.index > 1 and any(row.seq_id == 1 for row in step.rows))
    figures = trace.metrics()
    assert figures["requests"][1]["ttft"] == 1
    assert figures["inter_token_latency"]["max"] == back


def test_a_warm_recording_knows_no_arrival_of_older_requests():
    core = make_core(config(4, 8))
    core.add(prompt(5), params(4))
    core.step()
    trace = core.start_trace()
    core.add(prompt(5, 1), params(1))
    run_all(core)
    older, newer = trace.metrics()["requests"]
    assert (older["arrival"], older["ttft"], older["queue_time"], older["latency"]) == (None, None, None, None)
    assert older["num_output_tokens"] == 3
    assert newer["ttft"] > 0


def test_a_trace_without_steps_has_figures_too():
    figures = simulate([]).metrics()
    assert (figures["num_steps"], figures["num_requests"], figures["duration"]) == (0, 0, 0)
    assert figures["ttft"] is None


def figures_the_long_way(trace, states):
    """Recomputed tokens, found and looked-up tokens, and filled slots after each step, from rows alone."""
    size = trace.config.kvcache_block_size
    seen, computed_now, generated = {}, {}, {}
    recomputed, found, looked_up, filled = 0, 0, 0, []
    for step, state in zip(trace.steps, states, strict=True):
        for record in step.preempted:
            computed_now.pop(record.victim)
        for row in step.rows:
            known = seen.setdefault(row.seq_id, set())
            if row.chunk and row.chunk[0] == 1:
                found += row.num_cached
                looked_up += len(trace.requests[row.seq_id].prompt_token_ids) + generated.get(row.seq_id, 0)
                known |= set(range(row.num_cached))
            now = set(range(row.num_computed, row.num_computed + row.num_scheduled))
            recomputed += len(now & known)
            known |= now
            computed_now[row.seq_id] = row.num_computed + row.num_scheduled
            generated[row.seq_id] = generated.get(row.seq_id, 0) + (row.token_id is not None)
        slots = set()
        for seq_id, table in state["block_tables"].items():
            slots |= {table[p // size] * size + p % size for p in range(computed_now[seq_id])}
        filled.append(len(slots))
    return recomputed, found, looked_up, filled


def test_figures_of_random_runs_agree_with_counting_every_position():
    """Recordings from the start: recomputed tokens, hit rate, blocks held and slots filled."""
    recomputed_in_all = 0
    for seed in range(200):
        trace, states = drive(seed)
        if trace.header.initial.block_tables or not trace.steps:
            continue
        if any(request.arrival is None for request in trace.requests.values()):
            continue
        recomputed, found, looked_up, filled = figures_the_long_way(trace, states)
        figures = trace.metrics()
        assert figures["recomputed_tokens"] == recomputed, f"seed {seed}"
        assert figures["prefix_hit_rate"] == pytest.approx(found / looked_up), f"seed {seed}"
        steps = trace.to_pandas()["steps"]
        assert list(steps["filled_slots"]) == filled, f"seed {seed}"
        assert list(steps["used_blocks"]) == [sum(c > 0 for c in state["ref_counts"]) for state in states]
        recomputed_in_all += recomputed
    assert recomputed_in_all > 100


def test_usage_of_any_run_is_that_of_its_states():
    """Warm, aborted, failing and overlapped runs: queue lengths, blocks in use and free, slots filled at most."""
    warm = 0
    for seed in range(60):
        for trace in (drive(seed, trouble=0.1)[0], Driver(seed, 0.1).run().trace):
            for i, after in enumerate(usage(trace)):
                state = trace.state(i)
                assert (after.num_waiting, after.num_running) == (len(state.waiting), len(state.running))
                used = sum(count > 0 for count in state.ref_counts)
                assert (after.used_blocks, after.free_blocks) == (used, len(state.free_blocks))
                whole = sum(count > 0 and h != NO_HASH for count, h in zip(state.ref_counts, state.hashes, strict=True))
                size = trace.config.kvcache_block_size
                assert whole * size <= after.filled_slots <= used * size, f"seed {seed}, step {i}"
            warm += bool(trace.header.initial.block_tables)
    assert warm > 5


def test_a_step_has_one_headline_and_its_lines_are_the_explanation():
    for seed in range(20):
        trace, _ = drive(seed)
        for step in trace.steps:
            lines = explanation(trace, step.index)
            assert "\n".join(line.text for line in lines) == trace.explain(step.index)
            (headline,) = [line.text for line in lines if line.kind == "headline"]
            assert headline.startswith(f"Step {step.index} ({step.phase}")
            assert sum(line.kind == "preemption" for line in lines) == len(step.preempted)


# ---- tables -------------------------------------------------------------------------------


def test_data_frames_have_one_row_per_step_row_event_and_request(timed):
    frames = timed.to_pandas()
    assert set(frames) == {"steps", "rows", "events", "requests"}
    assert [len(frames[name]) for name in ("steps", "rows", "events", "requests")] == [4, 5, len(timed.events), 2]
    steps, rows = frames["steps"], frames["rows"]
    assert list(steps["phase"]) == ["prefill", "prefill", "decode", "decode"]
    assert list(steps["num_batched_tokens"]) == [5, 9, 2, 1]
    assert list(steps["free_blocks"]) == [6, 3, 6, 8]
    assert list(steps["filled_slots"]) == [5, 14, 6, 0]
    assert list(rows["seq_id"]) == [0, 1, 0, 1, 0]
    assert list(rows["num_scheduled"]) == [5, 9, 1, 1, 1]
    assert rows.groupby("seq_id")["token_id"].apply(list).to_dict() == {
        i: output["token_ids"] for i, output in enumerate(timed.outputs)
    }
    assert list(frames["events"].columns) == ["step", "kind", "seq_id", "block_id", "data"]
    assert list(frames["requests"]["ttft"]) == [5, 13]


def test_a_dropped_sample_is_missing_in_the_rows_table():
    rows = simulate([prompt(10)], params(1), **limits(4, 4, B=8)).to_pandas()["rows"]
    assert list(rows["token_id"].isna()) == [True, False]
    assert rows["token_id"].dtype == "Int64"


def test_tables_of_a_trace_without_steps_are_empty():
    frames = simulate([]).to_pandas()
    assert all(isinstance(frame, pd.DataFrame) and frame.empty for frame in frames.values())


def test_tables_and_figures_never_fail_on_random_runs():
    """Aborted and failing steps, warm starts, both policies."""
    for seed in range(40):
        trace, _ = drive(seed, trouble=0.1)
        frames = trace.to_pandas()
        assert len(frames["steps"]) == len(trace.steps)
        assert len(frames["requests"]) == len(trace.requests)
        figures = trace.metrics()
        if figures["kv_block_use"]:
            assert 0 <= figures["kv_slot_use"]["max"] <= figures["kv_block_use"]["max"] <= 1
