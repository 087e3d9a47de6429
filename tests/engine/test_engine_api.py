"""The engine a user holds: results, ids, life cycle, and what must not depend on anything else."""

import gc
import inspect
import multiprocessing
import subprocess
import sys
import weakref

import pytest
from kit.helpers import all_free, params, prompt

from nanoinfer import LLM, LLMEngine, SamplingParams, Trace
from nanoinfer.core.overlap.in_flight import Done
from nanoinfer.core.plan import StepResult

SMALL = {"kvcache_block_size": 4, "num_kvcache_blocks": 32}


def ids_of(outputs):
    return [output["token_ids"] for output in outputs]


# ---- results ------------------------------------------------------------------------------


def test_results_keep_the_order_of_the_prompts_although_short_ones_finish_first(llm):
    """B61."""
    prompts = [prompt(5), prompt(6, 1), prompt(4, 2)]
    outputs = llm.generate(prompts, [params(6), params(1), params(3)], use_tqdm=False)
    assert [len(ids) for ids in ids_of(outputs)] == [6, 1, 3]
    assert [output["num_prompt_tokens"] for output in outputs] == [5, 6, 4]
    first = outputs[0]["request_id"]
    assert [output["request_id"] for output in outputs] == [first, first + 1, first + 2]


def test_the_callers_lists_do_not_change(llm):
    """B61."""
    ids, each = prompt(5), [params(4)]
    prompts = [ids]
    llm.generate(prompts, each, use_tqdm=False)
    assert (prompts, ids, each) == ([prompt(5)], prompt(5), [params(4)])


def test_a_bare_string_is_one_prompt(llm):
    """B61: not one per character."""
    outputs = llm.generate("Once upon a time", params(3), use_tqdm=False)
    assert len(outputs) == 1
    assert outputs[0]["prompt"] == "Once upon a time"
    assert ids_of(outputs) == ids_of(llm.generate(["Once upon a time"], params(3), use_tqdm=False))


def test_an_output_has_its_text_and_its_plain_int_ids(llm):
    """B06: ids are ints, not tensor scalars, and text is what they decode to."""
    (output,) = llm.generate(["The cat"], params(5), use_tqdm=False)
    assert [type(token) for token in output["token_ids"]] == [int] * 5
    assert output["text"] == llm.tokenizer.decode(output["token_ids"])
    assert output["finish_reason"] == "length"


def test_text_and_its_ids_give_the_same_completion(llm):
    (by_text,) = llm.generate(["The cat sat"], params(4), use_tqdm=False)
    (by_ids,) = llm.generate([llm.tokenizer.encode("The cat sat")], params(4), use_tqdm=False)
    assert by_text["token_ids"] == by_ids["token_ids"]
    assert by_ids["prompt"] is None


def test_one_token_leaves_nothing_behind(llm):
    """B56: it finishes on the prefill step."""
    trace = llm.generate([prompt(9)], params(1), record=True, use_tqdm=False)
    assert [step.phase for step in trace.steps] == ["prefill"]
    assert trace.steps[0].running == []
    assert all_free(llm.scheduler)


def test_many_calls_leave_no_growth(llm):
    """B56: nothing is kept per request."""
    llm.generate([prompt(2)], params(1), use_tqdm=False)

    def kept():
        core = llm.core
        return [len(owner) for owner in (core.sequences, core._finished, llm._unclaimed, core.scheduler.sequences)]

    before = kept()
    for i in range(100):
        llm.generate([[i + 1, i + 2]], SamplingParams(max_tokens=1, temperature=1, seed=i), use_tqdm=False)
        assert kept() == before
    assert len(llm.runner.sampled_in) <= 1
    assert all_free(llm.scheduler)


def test_ninety_short_prompts_end(make_llm):
    """B40."""
    llm = make_llm(**SMALL, max_num_seqs=4)
    outputs = llm.generate([[i + 1, i + 2] for i in range(90)], params(2), use_tqdm=False)
    assert [len(ids) for ids in ids_of(outputs)] == [2] * 90


def test_max_model_len_ends_generation(make_llm):
    """B38: with the real rotary table behind it."""
    llm = make_llm(**SMALL, max_model_len=16)
    trace = llm.generate([prompt(14)], params(10), record=True, use_tqdm=False)
    assert (len(trace.outputs[0]["token_ids"]), trace.outputs[0]["finish_reason"]) == (2, "length")
    assert max(row.num_computed + row.num_scheduled for step in trace.steps for row in step.rows) <= 16
    with pytest.raises(ValueError, match="TOO_LONG"):
        llm.generate([prompt(16)], params(1), use_tqdm=False)


def test_max_model_len_is_never_above_the_positions_of_the_model(make_llm):
    """B38."""
    assert make_llm(**SMALL, max_model_len=100_000).config.max_model_len == 2048


def test_eos_of_the_model_ends_a_request_and_ignore_eos_does_not(llm):
    """B75, with the model's own ids: forced, so that it does not depend on the weights."""
    eos = llm.config.eos[0]
    launch = llm.runner.launch
    llm.runner.launch = lambda plan: Done(StepResult([eos] * len(launch(plan).result().token_ids)))
    try:
        (first,) = llm.generate([[eos, 5, eos]], SamplingParams(max_tokens=4), use_tqdm=False)
        (second,) = llm.generate([[eos, 5, eos]], SamplingParams(max_tokens=4, ignore_eos=True), use_tqdm=False)
    finally:
        del llm.runner.launch
    assert (first["token_ids"], first["finish_reason"]) == ([eos], "eos")
    assert (second["token_ids"], second["finish_reason"]) == ([eos] * 4, "length")


# ---- what outputs do not depend on ----------------------------------------------------------


def test_a_cache_hit_computes_one_position_and_gives_the_same_completion(llm):
    """B26: P(9) twice; the second prefill feeds position 8 only."""
    first = llm.generate([prompt(9)], params(6), record=True, use_tqdm=False)
    second = llm.generate([prompt(9)], params(6), record=True, use_tqdm=False)
    assert ids_of(first.outputs) == ids_of(second.outputs)
    (row,) = second.steps[0].rows
    assert (row.num_cached, row.num_computed, row.num_scheduled) == (8, 8, 1)


def test_stale_contents_of_the_cache_are_never_seen(llm):
    """B07: half-filled blocks are masked, whatever lies in their other slots."""
    expected = ids_of(llm.generate([prompt(5), prompt(2, 1)], params(6), use_tqdm=False))
    llm.reset_prefix_cache()
    for cache in llm.runner.loaded.caches:
        cache.blocks.fill_(1e30)
    assert ids_of(llm.generate([prompt(5), prompt(2, 1)], params(6), use_tqdm=False)) == expected
    for cache in llm.runner.loaded.caches:
        cache.blocks.zero_()
    llm.reset_prefix_cache()


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_completions_do_not_depend_on_chunks_batches_preemption_policy_or_cache(make_llm, temperature):
    """B26, B28, B43, B72: in float32, exactly."""
    texts = ["The little dog ran", "Once upon a time there was", "Tom likes", "The little dog ran home to"]
    each = [SamplingParams(temperature=temperature, max_tokens=n, ignore_eos=True, seed=n) for n in (9, 7, 12, 8)]
    expected = ids_of(make_llm(kvcache_block_size=16, num_kvcache_blocks=64).generate(texts, each, use_tqdm=False))
    preempted = 0
    for settings in (
        {"kvcache_block_size": 4, "num_kvcache_blocks": 7, "max_num_batched_tokens": 3},
        {"kvcache_block_size": 4, "num_kvcache_blocks": 7, "policy": "mixed", "max_num_batched_tokens": 5},
        {"kvcache_block_size": 1, "num_kvcache_blocks": 20, "max_num_seqs": 3},
        {"kvcache_block_size": 4, "num_kvcache_blocks": 7, "enable_prefix_caching": False},
    ):
        llm = make_llm(**settings)
        trace = llm.generate(texts, each, record=True, use_tqdm=False)
        assert ids_of(trace.outputs) == expected, settings
        preempted += sum(len(step.preempted) for step in trace.steps)
        assert ids_of(llm.generate(texts, each, use_tqdm=False)) == expected, "warm cache"
        llm.close()
    assert preempted >= 3


def test_a_seed_holds_beside_a_batch_mate_without_one(make_llm):
    """B72: [seed 42, none] three times: the first is the same, and not frozen on one token."""
    llm = make_llm(**SMALL)
    each = [SamplingParams(max_tokens=8, ignore_eos=True, seed=42), SamplingParams(max_tokens=8, ignore_eos=True)]
    runs = [ids_of(llm.generate([prompt(5), prompt(5, 1)], each, use_tqdm=False)) for _ in range(3)]
    assert runs[0][0] == runs[1][0] == runs[2][0]
    assert len(set(runs[0][0])) > 1
    assert len({tuple(run[1]) for run in runs}) > 1, "without a seed, each request draws anew"


def test_a_seeded_request_draws_anew_in_every_step(llm, monkeypatch):
    """B72: over equal logits only the draw decides, so a generator rebuilt each step would repeat one token."""
    forward = llm.runner.loaded.forward
    monkeypatch.setattr(llm.runner.loaded, "forward", lambda *inputs: forward(*inputs).zero_())
    each = SamplingParams(max_tokens=12, ignore_eos=True, seed=42)
    (output,) = llm.generate([prompt(5)], each, use_tqdm=False)
    assert len(set(output["token_ids"])) > 6


def test_an_engine_of_the_same_seed_repeats_itself(make_llm):
    """B62, B72: requests without a seed draw from the engine's and their id."""
    p = SamplingParams(max_tokens=6, ignore_eos=True)
    runs = [ids_of(make_llm(**SMALL, seed=s).generate([prompt(5)] * 2, p, use_tqdm=False)) for s in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0] != runs[0][1]


# ---- by hand ------------------------------------------------------------------------------


def test_requests_by_hand_give_what_generate_gives(llm):
    expected = ids_of(llm.generate([prompt(5), prompt(6, 1)], params(4), use_tqdm=False))
    llm.reset_prefix_cache()
    first = llm.add_request(prompt(5), params(4))
    assert not llm.is_finished()
    outputs = {o["request_id"]: o["token_ids"] for o in llm.step()}
    second = llm.add_request(prompt(6, 1), params(4))
    while not llm.is_finished():
        outputs |= {o["request_id"]: o["token_ids"] for o in llm.step()}
    assert [outputs[first], outputs[second]] == expected
    assert second == first + 1
    assert llm.step() == []


def test_generate_beside_requests_by_hand_returns_only_its_own(llm):
    by_hand = llm.add_request(prompt(4, 2), params(2))
    outputs = llm.generate([prompt(5), prompt(6, 1)], params(5), use_tqdm=False)
    assert len(outputs) == 2
    assert by_hand not in [o["request_id"] for o in outputs]
    assert not llm.is_finished(), "a result waits to be fetched"
    assert [(o["request_id"], len(o["token_ids"])) for o in llm.step()] == [(by_hand, 2)]
    assert llm.is_finished()


def test_an_aborted_request_frees_its_blocks_and_returns_what_it_had(llm):
    kept, dropped = llm.add_request(prompt(5), params(4)), llm.add_request(prompt(6, 1), params(9))
    llm.step()
    llm.step()
    output = llm.abort(dropped)
    assert (output["finish_reason"], len(output["token_ids"])) == ("abort", 2)
    done = []
    while not llm.is_finished():
        done += llm.step()
    assert [o["request_id"] for o in done] == [kept]
    assert all_free(llm.scheduler)


def test_a_hand_driven_trace_grows_and_calls_on_step(llm):
    """B97: in the same process, after each step."""
    seen = []
    trace = llm.start_trace(on_step=lambda trace, i: seen.append((i, len(trace.steps))))
    assert isinstance(trace, Trace)
    request = llm.add_request(prompt(5), params(3))
    llm.step()
    assert len(trace.steps) == 1
    while not llm.is_finished():
        llm.step()
    assert llm.stop_trace() is trace
    assert seen == [(0, 1), (1, 2), (2, 3)]
    assert [o["request_id"] for o in trace.outputs] == [request]
    llm.generate([prompt(3)], params(2), use_tqdm=False)
    assert len(trace.steps) == 3, "it no longer grows"


def test_a_recorded_run_is_a_trace_whose_outputs_are_the_results(llm):
    plain = llm.generate(["The cat", "A dog"], params(4), use_tqdm=False)
    llm.reset_prefix_cache()
    trace = llm.generate(["The cat", "A dog"], params(4), record=True, use_tqdm=False)
    assert ids_of(trace.outputs) == ids_of(plain)
    assert [r.prompt for r in trace.requests.values()] == ["The cat", "A dog"]
    assert trace.header.clock_unit == "seconds"
    assert {"torch", "transformers", "python", "nanoinfer"} <= set(trace.header.versions)
    assert (trace.header.model, trace.header.device, trace.header.schema_version) == ("tiny", "cpu", 2)
    assert trace.header.seed == llm.config.seed
    assert trace.header.config == llm.config.to_dict()
    assert all(step.timing["duration"] >= step.timing["run"] > 0 for step in trace.steps)


def test_recording_twice_at_once_is_refused_before_anything_is_queued(llm):
    trace = llm.start_trace()
    with pytest.raises(RuntimeError, match="stop_trace"):
        llm.generate([prompt(5)], params(2), record=True, use_tqdm=False)
    assert llm.is_finished()
    llm.generate([prompt(5)], params(2), use_tqdm=False)
    assert llm.stop_trace() is trace
    assert len(trace.steps) == 2, "an unrecorded call is part of the recording by hand"


def test_a_warm_engine_records_the_state_it_starts_from(llm):
    """Hits on blocks of runs that were not recorded fold too."""
    llm.generate([prompt(9)], params(2), use_tqdm=False)
    trace = llm.generate([prompt(9)], params(2), record=True, use_tqdm=False)
    assert len(trace.header.initial.hash_index) == 2
    assert trace.steps[0].rows[0].num_cached == 8
    assert trace.state(-1).free_blocks == list(llm.scheduler.block_manager.free_block_ids)
    assert trace.state(-1).hash_index == llm.scheduler.block_manager.hash_to_block_id


def test_reset_prefix_cache_makes_the_next_run_cold(llm):
    llm.generate([prompt(9)], params(2), use_tqdm=False)
    llm.reset_prefix_cache()
    trace = llm.generate([prompt(9)], params(2), record=True, use_tqdm=False)
    assert trace.steps[0].rows[0].num_computed == 0


# ---- life cycle ---------------------------------------------------------------------------


def test_two_engines_live_side_by_side_with_their_own_ids(make_llm):
    """B62, B66: no process group, no port, nothing shared."""
    first, second = make_llm(**SMALL), make_llm(kvcache_block_size=8, num_kvcache_blocks=9)
    (a,) = first.generate([prompt(9)], params(5), use_tqdm=False)
    (b,) = second.generate([prompt(9)], params(5), use_tqdm=False)
    assert (a["request_id"], b["request_id"]) == (0, 0)
    assert a["token_ids"] == b["token_ids"]
    first.close()
    (again,) = second.generate([prompt(9)], params(5), use_tqdm=False)
    assert (again["request_id"], again["token_ids"]) == (1, b["token_ids"])


def test_closing_twice_is_fine_and_so_is_a_with_block():
    """B64."""
    with LLM("tiny", **SMALL) as llm:
        assert llm.generate([[1]], params(1), use_tqdm=False)
        llm.close()
    llm.close()
    llm.close()


def test_a_with_block_closes_after_an_error():
    with pytest.raises(KeyError), LLM("tiny", **SMALL) as llm:
        raise KeyError
    with pytest.raises(RuntimeError, match="closed"):
        llm.generate([[1]])


def test_closing_gives_the_memory_back_although_the_engine_is_still_named():
    """B64: three rounds; weights and cache are gone each time, and nothing else keeps the engine alive."""
    for _ in range(3):
        llm = LLM("tiny", **SMALL)
        llm.generate([[1, 2]], params(2), record=True, use_tqdm=False)
        caches, parameters = llm.runner.loaded.caches, llm.runner.loaded.model.parameters()
        gone = [weakref.ref(tensor) for tensor in [*(cache.blocks for cache in caches), *parameters]]
        del caches, parameters
        engine = weakref.ref(llm)
        assert len(gone) > 10
        llm.close()
        gc.collect()
        assert not [ref for ref in gone if ref() is not None]
        del llm
        gc.collect()
        assert engine() is None


def test_no_full_garbage_collection_interrupts_a_batch(llm):
    """One would stop the host for longer than many steps; afterwards, and after an error, all is as it was."""
    before, seen = gc.get_threshold(), []
    llm.generate([prompt(5)], params(2), on_step=lambda trace, i: seen.append(gc.get_threshold()), use_tqdm=False)
    assert all(now[:2] == before[:2] and now[2] > 10**6 for now in seen)
    assert len(seen) == 2
    assert gc.get_threshold() == before
    with pytest.raises(ZeroDivisionError):
        llm.generate([prompt(5)], params(2), on_step=lambda trace, i: 1 // 0, use_tqdm=False)
    assert gc.get_threshold() == before


def test_deleting_an_engine_without_closing_it_gives_the_memory_back_too():
    """B64: no exit hook and no global holds it."""
    llm = LLM("tiny", **SMALL)
    llm.generate([[1, 2]], params(2), use_tqdm=False)
    engine, cache = weakref.ref(llm), weakref.ref(llm.runner.loaded.caches[0].blocks)
    del llm
    gc.collect()
    assert engine() is None
    assert cache() is None


def test_one_device_starts_no_process_and_needs_no_process_group(make_llm):
    """B65, B66, B67, B86: no workers, so no group, port or shared memory to clean up."""
    torch = pytest.importorskip("torch")
    before = set(multiprocessing.active_children())
    llm = make_llm(**SMALL, tensor_parallel_size=1)
    llm.generate([[1, 2]], params(2), use_tqdm=False)
    assert set(multiprocessing.active_children()) == before
    assert not (torch.distributed.is_available() and torch.distributed.is_initialized())


def test_an_unguarded_script_runs_and_exits_cleanly():
    """B67: no `if __name__ == "__main__"` needed, nothing on stderr, even without close()."""
    code = """
from nanoinfer import LLM, SamplingParams
a, b = (LLM("tiny", kvcache_block_size=4, num_kvcache_blocks=8) for _ in range(2))
print(len(a.generate([[1, 2]], SamplingParams(max_tokens=3, ignore_eos=True))[0]["token_ids"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "3", "")


def test_making_an_engine_changes_no_process_wide_default(make_llm):
    """B62: dtype, device and gradient mode stay the user's."""
    torch = pytest.importorskip("torch")
    state = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.initial_seed()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make_llm(**SMALL).generate([[1, 2]], SamplingParams(max_tokens=2), use_tqdm=False)
    assert torch.equal(torch.rand(3), expected), "the global generator was used"
    assert (torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()) == state[:3]


def test_llmengine_is_the_same_engine_under_another_name():
    assert issubclass(LLM, LLMEngine)
    for name in ("generate", "chat", "add_request", "step", "abort", "is_finished", "reset_prefix_cache", "close"):
        assert inspect.isfunction(getattr(LLMEngine, name))
        assert getattr(LLM, name) is getattr(LLMEngine, name)
    with LLMEngine("tiny", **SMALL) as engine:
        assert len(engine.generate([[1, 2]], params(2), use_tqdm=False)) == 1


def test_own_scheduler_and_block_manager_classes_run_in_the_engine(make_llm):
    from nanoinfer import BlockManager, Scheduler

    class MyScheduler(Scheduler):
        pass

    class MyManager(BlockManager):
        pass

    llm = make_llm(**SMALL, scheduler_cls=MyScheduler, block_manager_cls=MyManager)
    trace = llm.generate([prompt(5)], params(2), record=True, use_tqdm=False)
    assert isinstance(llm.scheduler, MyScheduler)
    assert isinstance(llm.scheduler.block_manager, MyManager)
    assert trace.header.scheduler_cls.endswith("MyScheduler")
    assert trace.header.block_manager_cls.endswith("MyManager")
