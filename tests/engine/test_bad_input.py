"""What a user can get wrong is a clear error before anything is queued."""

import numpy as np
import pytest
from kit.helpers import POLICIES, params, prompt

from nanoinfer import LLM, EngineConfig, SamplingParams, Trace, simulate
from nanoinfer.reasons import RefusedError

VOCAB = 4096


def untouched(llm):
    """Nothing is queued, no block is taken, no id was used up."""
    scheduler = llm.scheduler
    free = len(scheduler.block_manager.free_block_ids)
    return (not scheduler.sequences, llm.is_finished(), free == llm.config.num_kvcache_blocks) == (True, True, True)


def refused(llm, prompts, message, sampling_params=None, error=ValueError):
    """`prompts` are refused with this message, and the next call returns only its own results."""
    next_id = llm.core.next_id
    with pytest.raises(error, match=message):
        llm.generate(prompts, params(2) if sampling_params is None else sampling_params, use_tqdm=False)
    assert untouched(llm)
    (output,) = llm.generate([[1, 2, 3]], params(1), use_tqdm=False)
    assert (output["request_id"], len(output["token_ids"])) == (next_id, 1)


@pytest.mark.parametrize("prompts", [[[]], [""], "", [[1, 2], []], ["hello", ""], [np.array([], int)]], ids=repr)
def test_an_empty_prompt_is_refused(llm, prompts):
    """B55: whether a tokenizer adds a start token makes no difference."""
    refused(llm, prompts, "empty")


def test_an_empty_batch_gives_an_empty_list(llm):
    """B55."""
    assert llm.generate([], params(2), use_tqdm=False) == []
    assert llm.generate([], [], use_tqdm=False) == []
    assert llm.chat([], use_tqdm=False) == []
    trace = llm.generate([], record=True, use_tqdm=False)
    assert (trace.steps, trace.outputs) == ([], [])
    assert untouched(llm)


@pytest.mark.parametrize(
    ("ids", "named"),
    [
        ([5, VOCAB], str(VOCAB)),
        ([5, VOCAB + 7], str(VOCAB + 7)),
        ([-1], "-1"),
        ([True], "True"),
        ([1, False], "False"),
        ([3.0], "3.0"),
        ([1, "2"], "'2'"),
        ([1, None], "None"),
        ([[1, 2]], r"\[1, 2\]"),
        (np.array([1.0, 2.0]), "1.0"),
        ([2**63], str(2**63)),
    ],
    ids=str,
)
def test_an_id_that_is_none_of_the_model_is_refused_by_name(llm, ids, named):
    """B57: the model's vocabulary counts, not the tokenizer's."""
    refused(llm, [[1, 2], ids], rf"prompt 1 token ids must be.*{named}")


@pytest.mark.parametrize("prompts", [[5, 6], 7, [None], [3.5]], ids=repr)
def test_a_prompt_that_is_neither_text_nor_ids_is_refused(llm, prompts):
    refused(llm, prompts, "prompt|iterable|string", error=(ValueError, TypeError))


def test_a_stop_id_outside_the_vocabulary_is_refused(llm):
    """B57."""
    refused(llm, [[1, 2]], rf"stop_token_ids.*{VOCAB}", SamplingParams(stop_token_ids=[VOCAB]))


@pytest.mark.parametrize("eos", [[VOCAB], [2, -5]], ids=repr)
def test_an_eos_that_can_never_be_drawn_is_refused(eos):
    with pytest.raises(ValueError, match=rf"each of eos must be in the vocabulary, 0 to {VOCAB - 1}, got {eos[-1]}"):
        LLM("tiny", eos=eos)


def test_the_simulator_has_no_vocabulary_to_speak_of():
    with pytest.raises(ValueError, match=r"each of prompt 1 token ids must be from 0 to 2\*\*63 - 1, got -3"):
        simulate([[1], [-3]])


def test_a_question_that_is_no_conversation_is_answered_with_one(llm):
    with pytest.raises(ValueError, match=r"takes a conversation: \[\{\"role\": \"user\", \"content\": 'Why\?'\}\]"):
        llm.chat("Why?")
    assert untouched(llm)


def test_numbers_of_numpy_are_numbers():
    assert SamplingParams(temperature=np.float32(0.5), top_p=np.float64(0.25)) == SamplingParams(0.5, top_p=0.25)


def test_numpy_and_tensor_ids_are_accepted(llm):
    torch = pytest.importorskip("torch")
    expected = llm.generate([[5, 6, 7]], params(3), use_tqdm=False)[0]["token_ids"]
    for ids in (np.array([5, 6, 7]), np.array([5, 6, 7], np.uint16), torch.tensor([5, 6, 7]), (5, 6, 7), range(5, 8)):
        assert llm.generate([ids], params(3), use_tqdm=False)[0]["token_ids"] == expected


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_max_tokens_below_one_is_refused(llm, max_tokens):
    """B56: when the parameters are made, so before any engine sees them."""
    with pytest.raises(ValueError, match=rf"max_tokens must be at least 1, got {max_tokens}"):
        llm.generate([[1]], SamplingParams(max_tokens=max_tokens))
    assert untouched(llm)


def test_a_prompt_that_fills_the_model_is_refused_with_both_numbers(llm):
    """B38: 2,048 positions; the longest prompt that is accepted has one token fewer."""
    assert llm.config.max_model_len == 2048, "the default of 4,096 is capped by the model's positions"
    for n in (2048, 2049):
        refused(llm, [[1] * n], rf"TOO_LONG.*{n} tokens.*2048")


def test_a_request_that_never_fits_is_refused_with_both_numbers(llm):
    """B35: 64 blocks of 4; 257 tokens need KV in 65."""
    refused(llm, [[1] * 255], r"NEVER_FITS.*need 65 blocks of 4, have 64", params(3))
    with pytest.raises(RefusedError) as error:
        llm.add_request([1] * 255, params(3))
    assert error.value.operands == {"needed": 65, "have": 64}
    (output,) = llm.generate([[1] * 255], params(2), use_tqdm=False)
    assert len(output["token_ids"]) == 2


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_parameter_list_of_another_length_is_refused(llm, count):
    """B60: never silently cut."""
    refused(llm, [[1], [2], [3]], rf"{count} entries for 3 prompts", [params(2)] * count)


def test_a_parameter_list_with_something_else_in_it_is_refused(llm):
    refused(llm, [[1], [2]], "SamplingParams", [params(2), {"max_tokens": 2}], TypeError)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_one_bad_prompt_refuses_the_whole_batch(llm, bad):
    """B35: the others are not queued either, and do not come out of the next call."""
    prompts = [[1, 2], [3, 4], [5, 6]]
    prompts[bad] = [VOCAB]
    refused(llm, prompts, str(VOCAB))


def test_add_request_refuses_what_generate_refuses(llm):
    for ids, message in (([], "empty"), ([VOCAB], str(VOCAB)), ([1] * 2048, "TOO_LONG"), ("", "empty")):
        with pytest.raises(ValueError, match=message):
            llm.add_request(ids, params(2))
    assert untouched(llm)
    assert llm.step() == []


def test_an_unknown_setting_is_a_type_error_before_a_model_is_loaded():
    with pytest.raises(TypeError, match=r"'max_num_seq'; did you mean 'max_num_seqs'"):
        LLM("tiny", max_num_seq=4)
    with pytest.raises(TypeError, match=r"'blocksize'; did you mean"):
        EngineConfig(blocksize=4)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 0},
        {"max_num_seqs": 0},
        {"num_kvcache_blocks": 0},
        {"kvcache_block_size": 0},
        {"max_num_seqs": -1},
        {"kvcache_block_size": -256},
        {"num_kvcache_blocks": -7},
        {"policy": "fastest"},
        {"device": "abacus"},
        {"dtype": "int3"},
        {"load_format": "pickle"},
        {"attention_backend": "magic"},
        {"tensor_parallel_size": 0},
    ],
    ids=str,
)
def test_an_engine_with_a_setting_that_cannot_be_is_refused(settings):
    """B39: the field is named."""
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=name) as error:
        LLM("tiny", **settings)
    assert str(value) in str(error.value)


def test_an_unknown_policy_names_the_known_ones():
    for make in (lambda: LLM("tiny", policy="sjf"), lambda: simulate([[1]], policy="sjf")):
        with pytest.raises(ValueError, match=f"policy.*{', '.join(POLICIES)}.*'sjf'"):
            make()


def test_a_model_that_is_not_there_is_a_clear_error():
    with pytest.raises(ValueError, match="no model 'gone'"):
        LLM("gone")


def test_a_damaged_or_newer_trace_is_refused(llm, tmp_path):
    """The engine's own traces, cut short and from the future."""
    path = tmp_path / "t.jsonl"
    llm.generate([[1, 2, 3]], params(3), record=True, use_tqdm=False).save(path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(ValueError, match=r"t\.jsonl is truncated"):
        Trace.load(path)
    path.write_text(text.replace('"schema_version":2', '"schema_version":99', 1), encoding="utf-8")
    with pytest.raises(ValueError, match="99"):
        Trace.load(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": [[]]}, "empty"),
        ({"prompts": [[1], [-1]]}, "-1"),
        ({"prompts": [[1], [True]]}, "True"),
        ({"prompts": [[1]], "arrivals": [0, 1]}, "arrivals has 2 entries for 1 prompts"),
        ({"prompts": [[1]], "arrivals": [-1]}, "arrivals"),
        ({"prompts": [[1]], "arrivals": [float("nan")]}, "arrivals"),
        ({"prompts": [[1]], "sampling_params": [SamplingParams()] * 2}, "2 entries for 1 prompts"),
        ({"prompts": [[1]], "eos": "x"}, "eos"),
        ({"prompts": [[1]], "cost_model": lambda plan: float("inf")}, "cost_model"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_the_simulator_refuses_what_it_cannot_run(arguments, message):
    with pytest.raises(ValueError, match=message):
        simulate(**arguments)


def test_aborting_an_unknown_or_finished_request_names_the_live_ones(llm):
    (output,) = llm.generate([[1, 2]], params(1), use_tqdm=False)
    live = llm.add_request(prompt(4), params(3))
    for request_id in (output["request_id"], 10**6, -1):
        with pytest.raises(ValueError, match=rf"no live request {request_id}.*{live}"):
            llm.abort(request_id)
    assert llm.abort(live)["finish_reason"] == "abort"
    with pytest.raises(ValueError, match="no live request"):
        llm.abort(live)


def test_a_closed_engine_says_so(make_llm):
    llm = make_llm(kvcache_block_size=4, num_kvcache_blocks=8)
    llm.close()
    for call in (lambda: llm.generate([[1]]), lambda: llm.add_request([1]), llm.step, llm.start_trace):
        with pytest.raises(RuntimeError, match="closed"):
            call()
