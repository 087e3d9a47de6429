"""The spans of a trace against values worked out by hand."""

import subprocess
import sys

import pytest
from kit.helpers import POLICIES

from nanoinfer import SamplingParams, simulate
from nanoinfer.config import EngineConfig
from nanoinfer.core.engine_core import EngineCore
from nanoinfer.core.plan import StepResult
from nanoinfer.trace.spans import Span, sequence_spans
from nanoinfer.viz.series import fullest, tokens_per_step, used_blocks_per_step


def spans_of(trace, seq_id):
    return [tuple(span)[1:] for span in sequence_spans(trace) if span.seq_id == seq_id]


def test_preemption_lasts_until_the_recompute_and_chunks_stay_apart(self_preemption):
    assert spans_of(self_preemption, 0) == [
        ("prefill", 0, 1, 6),
        ("prefill", 1, 2, 2),
        ("decode", 4, 8, 4),  # stays out while the other prefills
        ("finished", 7, 8, 0),
    ]
    assert spans_of(self_preemption, 1) == [
        ("waiting", 0, 2, 0),
        ("prefill", 2, 3, 6),
        ("prefill", 3, 4, 2),
        ("preempted", 4, 8, 0),
        ("hit", 8, 9, 8),  # its own blocks were still cached
        ("prefill", 8, 9, 1),
        ("decode", 9, 12, 3),
        ("finished", 11, 12, 0),
    ]


def test_a_prefix_hit_comes_once_with_the_first_chunk():
    prefix = list(range(8))
    trace = simulate(
        [[*prefix, 100], [*prefix, *range(200, 210)]],
        SamplingParams(max_tokens=3),
        arrivals=[0, 1],
        kvcache_block_size=4,
        max_num_batched_tokens=9,
    )
    assert spans_of(trace, 1) == [
        ("hit", 1, 2, 8),
        ("prefill", 1, 2, 9),
        ("prefill", 2, 3, 1),
        ("decode", 3, 5, 2),
        ("finished", 4, 5, 0),
    ]


def test_nothing_before_the_arrival_and_waiting_until_the_end_of_the_trace():
    core = engine(num_kvcache_blocks=2)
    trace = core.start_trace()
    core.add([1, 2, 3], SamplingParams(max_tokens=4))
    core.step()
    core.add([4] * 7, SamplingParams(max_tokens=1))  # needs both blocks
    core.step()
    core.step()
    core.stop_trace()
    assert spans_of(trace, 1) == [("waiting", 1, 3, 0)]
    assert spans_of(trace, 0)[-1] == ("decode", 1, 3, 2)


@pytest.mark.parametrize(("steps_before", "expected"), [(0, []), (2, [("waiting", 0, 2, 0), ("finished", 1, 2, 0)])])
def test_an_abort_ends_in_the_last_step_it_was_queued_in(steps_before, expected):
    core = engine(num_kvcache_blocks=1)
    trace = core.start_trace()
    core.add([1], SamplingParams(max_tokens=3))
    core.add([2], SamplingParams(max_tokens=3))
    for _ in range(steps_before):
        core.step()
    core.abort(1)
    while not core.is_finished():
        core.step()
    core.stop_trace()
    assert spans_of(trace, 1) == expected


def test_an_abort_after_the_last_step_is_seen():
    core = engine(num_kvcache_blocks=4)
    trace = core.start_trace()
    core.add([1], SamplingParams(max_tokens=9))
    core.step()
    core.step()
    core.abort(0)
    core.stop_trace()
    assert spans_of(trace, 0) == [("prefill", 0, 1, 1), ("decode", 1, 2, 1), ("finished", 1, 2, 0)]


def test_a_recording_that_begins_warm():
    core = engine(num_kvcache_blocks=2)
    core.add([1, 2, 3], SamplingParams(max_tokens=4))
    core.add([4] * 7, SamplingParams(max_tokens=1))
    core.step()
    trace = core.start_trace()
    while not core.is_finished():
        core.step()
    core.stop_trace()
    assert spans_of(trace, 0) == [("decode", 0, 3, 3), ("finished", 2, 3, 0)]
    assert spans_of(trace, 1) == [("waiting", 0, 3, 0), ("prefill", 3, 4, 7), ("finished", 3, 4, 0)]


def test_a_hit_before_the_recording_is_not_a_hit_in_it():
    core = engine(num_kvcache_blocks=8, max_num_batched_tokens=9)
    core.add([1, 2, 3, 4, 5], SamplingParams(max_tokens=1))
    core.step()
    core.add([1, 2, 3, 4, *range(10, 22)], SamplingParams(max_tokens=1))
    core.step()  # finds one block and computes 9 of the other 12 tokens
    trace = core.start_trace()
    core.step()
    core.stop_trace()
    assert spans_of(trace, 1) == [("prefill", 0, 1, 3), ("finished", 0, 1, 0)]


@pytest.mark.parametrize("policy", POLICIES)
def test_spans_account_for_every_row(busy, policy):
    trace = busy[policy]
    spans = sequence_spans(trace)
    cells = [(s.seq_id, i) for s in spans if s.kind in ("prefill", "decode") for i in range(s.start, s.end)]
    rows = [(seq_id, step.index) for step in trace.steps for seq_id in step.columns.seq_id]
    assert sorted(cells) == sorted(rows)
    computed = sum(s.tokens for s in spans if s.kind in ("prefill", "decode"))
    assert computed == sum(step.num_batched_tokens for step in trace.steps)
    idle = {(s.seq_id, i) for s in spans if s.kind in ("waiting", "preempted") for i in range(s.start, s.end)}
    assert not idle & set(cells)
    assert sum(s.kind == "preempted" for s in spans) == sum(len(step.preempted) for step in trace.steps) > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_series_equal_the_folded_state(busy, policy):
    trace = busy[policy]
    prefill, decode = tokens_per_step(trace)
    assert [int(n) for n in prefill + decode] == [step.num_batched_tokens for step in trace.steps]
    assert all(d == 0 or step.phase != "prefill" for d, step in zip(decode, trace.steps, strict=True))
    held = [sum(count > 0 for count in trace.state(i).ref_counts) for i in range(len(trace.steps))]
    assert used_blocks_per_step(trace).tolist() == held


def test_fullest_keeps_the_highest_of_each_slice(self_preemption):
    total = tokens_per_step(self_preemption)[0]
    assert total.tolist() == [6, 2, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0]
    assert fullest(total, 3) == [0, 4, 8]
    assert fullest(total, 100) == list(range(12))


def test_spans_need_neither_matplotlib_nor_torch():
    code = (
        "import sys, nanoinfer.trace.spans, nanoinfer.viz.series;"
        "print([m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_span_is_a_plain_tuple():
    assert Span(3, "decode", 1, 4, 3) == (3, "decode", 1, 4, 3)


class Ones:
    """A runner that always samples token 1."""

    def run(self, plan):
        return StepResult([1] * len(plan.rows))


def engine(**settings):
    config = EngineConfig(kvcache_block_size=4, **settings)
    return EngineCore(config, Ones(), lambda: 0.0, "steps", "simulator")
