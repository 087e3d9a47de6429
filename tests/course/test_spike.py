"""The incident that a lesson investigates has the causes that the lesson finds."""

from nanoinfer.course.spike import LONG_PROMPT, latency_spike


def test_a_long_prompt_stalls_everybody_who_decodes():
    trace = latency_spike()
    (culprit,) = [r.seq_id for r in trace.requests.values() if len(r.prompt_token_ids) == LONG_PROMPT]
    chunks = [step for step in trace.steps for row in step.rows if row.seq_id == culprit and row.chunk]
    assert [step.index for step in chunks] == list(range(chunks[0].index, chunks[0].index + 3))
    assert {step.decode_stop.reason for step in chunks} == {"PHASE_EXCLUSIVE"}
    gaps = trace.metrics()["inter_token_latency"]
    assert gaps["p99"] < 0.03 < 0.6 < gaps["max"]


def test_the_preemption_comes_later_and_is_not_the_cause():
    trace = latency_spike()
    (index,) = [step.index for step in trace.steps if step.preempted]
    last_chunk = max(step.index for step in trace.steps for row in step.rows if row.chunk and row.chunk[1] == 3)
    assert index > last_chunk
    assert trace.metrics()["recomputed_tokens"] < 300
