"""The engine with the overlapped loop: the same outputs, and it stays usable. (On the CPU no time is saved.)"""

import pytest
from kit.helpers import POLICIES, all_free, check_pool, params, prompt

from nanoinfer import SamplingParams, Scheduler


@pytest.fixture(scope="module")
def engines():
    """A plain and an overlapped engine over the same model."""
    from nanoinfer import LLM

    settings = {"kvcache_block_size": 4, "num_kvcache_blocks": 20, "max_num_batched_tokens": 12}
    with LLM("tiny", **settings) as plain, LLM("tiny", overlap=True, **settings) as overlapped:
        yield plain, overlapped


@pytest.fixture
def overlapped(engines):
    """The second; checks that it is idle afterwards."""
    yield engines[1]
    assert engines[1].is_finished()
    assert all_free(engines[1].scheduler)


def test_none_chooses_the_plain_loop_on_the_cpu(engines):
    assert [llm.config.overlap for llm in engines] == [False, True]


@pytest.mark.parametrize("policy", POLICIES)
def test_outputs_are_those_of_the_plain_loop(make_llm, policy):
    """Texts that end by eos, by a stop id and by length; preemptions, chunks, seeded sampling."""
    prompts = ["Once upon a time", "Tom has a dog. Tom", [5, 9, 6, 12, 11, 80, 3], "The cat sat"]
    each = [
        SamplingParams(max_tokens=30, temperature=0.9, seed=1),
        SamplingParams(max_tokens=40, temperature=0),
        SamplingParams(max_tokens=20, temperature=1.2, seed=2, top_k=20),
        SamplingParams(max_tokens=25, temperature=0, stop_token_ids=[11]),
    ]
    settings = {"kvcache_block_size": 4, "num_kvcache_blocks": 16, "max_num_batched_tokens": 10, "policy": policy}
    results = []
    for overlap in (False, True):
        llm = make_llm(overlap=overlap, **settings)
        trace = llm.generate(prompts, each, record=True, use_tqdm=False)
        results.append([(output["token_ids"], output["finish_reason"], output["text"]) for output in trace.outputs])
        assert llm.is_finished()
        assert trace.metrics()["num_preemptions"] > 0
        if overlap:
            late = [output for output in trace.outputs if output["finish_reason"] != "length"]
            assert late
            assert trace.metrics()["wasted_rows"] <= len(late)
            assert all({"launch", "wait", "duration"} <= step.timing.keys() for step in trace.steps)
    assert results[0] == results[1]


def test_an_engine_is_idle_when_generate_returns(overlapped):
    """Also when the last request ended by a stop id, with a row in flight."""
    first = overlapped.generate([prompt(5)], params(8), use_tqdm=False)[0]["token_ids"]
    stop = first[3]
    overlapped.reset_prefix_cache()
    (output,) = overlapped.generate([prompt(5)], params(8, stop_token_ids=[stop]), use_tqdm=False)
    assert output["token_ids"] == first[: first.index(stop) + 1]


def test_a_recording_has_the_outputs_that_its_last_step_finishes(overlapped):
    """They are returned by the next call as well; a recording that begins then has none of them."""
    request = overlapped.add_request(prompt(5), params(2))
    overlapped.start_trace()
    while overlapped.scheduler.sequences:
        assert overlapped.step() == []
    trace = overlapped.stop_trace()
    later = overlapped.start_trace()
    assert overlapped.step() == trace.outputs
    assert [output["request_id"] for output in trace.outputs] == [request]
    assert overlapped.stop_trace().outputs == later.outputs == []


def test_candidates_are_of_the_newest_step(engines, overlapped):
    """Both engines name the same ones; the overlapped one first waits for the step in flight."""
    told = []
    for llm in engines:
        trace = llm.start_trace()
        seq_id = llm.add_request(prompt(6), params(8))
        for _ in range(2):
            llm.step()
        candidates = llm.top_candidates(seq_id, 3)
        assert len(trace.steps) == 2
        assert trace.steps[-1].columns.token_id == [candidates[0]["token_id"]]
        told.append([row["token_id"] for row in candidates])
        llm.abort(seq_id)
        llm.step()
        llm.stop_trace()
    assert told[0] == told[1]


@pytest.mark.parametrize("call", [1, 2, 4])
def test_ctrl_c_in_a_forward_pass_drops_the_batch_and_only_the_batch(overlapped, monkeypatch, call):
    expected = overlapped.generate([prompt(9, 1)], params(6), use_tqdm=False)[0]["token_ids"]
    other = overlapped.add_request(prompt(9, 1), params(6))
    original, calls = overlapped.runner.launch, []

    def run(plan):
        calls.append(plan)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(plan)

    with monkeypatch.context() as patch:
        patch.setattr(overlapped.runner, "launch", run)
        with pytest.raises(KeyboardInterrupt):
            overlapped.generate([prompt(5, 2), prompt(7, 3)], params(8), use_tqdm=False)
    check_pool(overlapped.scheduler)
    assert list(overlapped.scheduler.sequences) == [other]
    outputs = []
    while not overlapped.is_finished():
        outputs += overlapped.step()
    assert [output["token_ids"] for output in outputs] == [expected]


def test_ctrl_c_in_on_step_ends_the_recording_and_the_batch(overlapped):
    def on_step(trace, i):
        if i == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        overlapped.generate([prompt(5), prompt(6, 1)], params(9), on_step=on_step, use_tqdm=False)
    assert overlapped.is_finished()
    overlapped.start_trace()
    overlapped.stop_trace()


def test_an_aborted_request_shows_the_tokens_that_are_known(overlapped):
    seq_id = overlapped.add_request(prompt(5), params(8))
    for _ in range(3):
        overlapped.step()
    output = overlapped.abort(seq_id)
    assert len(output["token_ids"]) == 2
    assert min(output["token_ids"]) >= 0
    while not overlapped.is_finished():
        assert overlapped.step() == []


def test_a_scheduler_with_its_own_postprocess_needs_the_plain_loop(make_llm):
    class Own(Scheduler):
        def postprocess(self, plan, token_ids):
            super().postprocess(plan, token_ids)

    with pytest.raises(TypeError, match="overlap=True does not work with Own: it has its own postprocess"):
        make_llm(overlap=True, scheduler_cls=Own)
    assert make_llm(scheduler_cls=Own).config.overlap is False


def test_the_live_explorer_steps_an_overlapped_engine(overlapped):
    """One press, one step in the trace, the first included; candidates match the sampled token."""
    pytest.importorskip("anywidget")
    explorer = overlapped.explore([prompt(5), prompt(6, 1)], params(4))
    explorer.selected = explorer.status["sequences"][0]["id"]
    explorer.step()
    assert explorer.trace.steps
    assert any(row["sampled"] for row in explorer.status["candidates"]["rows"])
    while not explorer.status["idle"]:
        explorer.step()
    assert [row["status"] for row in explorer.status["sequences"]] == ["finished", "finished"]
    assert [row["tokens"] for row in explorer.status["sequences"]] == [4, 4]
    explorer.close()
    overlapped.step()
