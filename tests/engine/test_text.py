"""Text in and out: the chat template is rendered once and shown, and nothing is added to it."""

import json
from pathlib import Path

import pytest
from kit.helpers import params

import nanoinfer
from nanoinfer.engine.tokenizer import Tokenizer

CHAT = [{"role": "user", "content": "Who is Tom?"}]
START = "<|im_start|>"


def count_renderings(llm, monkeypatch):
    calls = []
    original = llm.tokenizer.apply_chat_template

    def counted(*args, **kwargs):
        calls.append((args, kwargs))
        return original(*args, **kwargs)

    monkeypatch.setattr(llm.tokenizer, "apply_chat_template", counted)
    return calls


def test_a_chat_is_rendered_once_and_the_rendered_prompt_is_shown(llm, monkeypatch):
    """B89: what the model saw is in the output, and in the trace."""
    calls = count_renderings(llm, monkeypatch)
    trace = llm.chat(CHAT, params(3), record=True, use_tqdm=False)
    (output,) = trace.outputs
    assert len(calls) == 1
    assert output["prompt"] == f"{START}user\nWho is Tom?<|im_end|>\n{START}assistant\n"
    (request,) = trace.requests.values()
    assert request.prompt == output["prompt"]


def test_a_rendered_chat_gets_no_second_start_token(llm):
    """B90: its ids are those of the rendered text, with as many start tokens as the text has."""
    trace = llm.chat(CHAT, params(2), record=True, use_tqdm=False)
    (request,) = trace.requests.values()
    start_id, *rest = llm.tokenizer.encode(START)
    assert rest == []
    assert request.prompt_token_ids.count(start_id) == request.prompt.count(START) == 2
    assert request.prompt_token_ids == llm.tokenizer.encode(request.prompt)
    assert trace.outputs[0]["num_prompt_tokens"] == len(request.prompt_token_ids)


def test_a_chat_equals_generating_from_its_rendered_prompt(llm):
    """B90: text that holds special tokens is not wrapped again."""
    (by_chat,) = llm.chat(CHAT, params(6), use_tqdm=False)
    (by_text,) = llm.generate([by_chat["prompt"]], params(6), use_tqdm=False)
    assert by_chat["token_ids"] == by_text["token_ids"]
    assert by_chat["num_prompt_tokens"] == by_text["num_prompt_tokens"]


def test_several_chats_at_once_keep_their_order(llm):
    other = [{"role": "user", "content": "Where is the dog?"}]
    both = llm.chat([CHAT, other], params(4), use_tqdm=False)
    assert ["Tom" in output["prompt"] for output in both] == [True, False]
    assert both[1]["token_ids"] == llm.chat(other, params(4), use_tqdm=False)[0]["token_ids"]


def test_options_reach_the_template(llm):
    """B89: enable_thinking and the like change the prompt, not the parsing; an unknown one is the template's own."""
    (plain,) = llm.chat(CHAT, params(1), use_tqdm=False)
    (bare,) = llm.chat(CHAT, params(1), add_generation_prompt=False, use_tqdm=False)
    (thinking,) = llm.chat(CHAT, params(1), enable_thinking=False, use_tqdm=False)
    assert plain["prompt"].startswith(bare["prompt"])
    assert not bare["prompt"].endswith("assistant\n")
    assert thinking["prompt"] == plain["prompt"], "this template has no such variable"


def test_plain_text_gets_no_special_tokens(llm):
    """B90."""
    ids = llm.tokenizer.encode("The cat sat")
    trace = llm.generate(["The cat sat"], params(1), record=True, use_tqdm=False)
    (request,) = trace.requests.values()
    assert request.prompt_token_ids == ids
    assert llm.tokenizer.decode(ids) == "The cat sat"


def test_a_trace_with_text_survives_a_round_trip(llm, tmp_path):
    from nanoinfer import Trace

    trace = llm.chat([{"role": "user", "content": "Café 😀 ?"}], params(5), record=True, use_tqdm=False)
    trace.save(tmp_path / "t.jsonl.gz")
    assert Trace.load(tmp_path / "t.jsonl.gz") == trace


def test_a_tokenizer_that_adds_a_start_token_by_itself_is_told_not_to(tmp_path):
    """B90: the rendered template holds its start token already, and plain text asks for none."""
    tiny = Path(nanoinfer.__file__).parent / "models" / "tiny"
    settings = json.loads((tiny / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    tokenizer = json.loads((tiny / "tokenizer.json").read_text(encoding="utf-8"))
    start, text = {"SpecialToken": {"id": START, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [start, text],
        "pair": [start, text],
        "special_tokens": {START: {"id": START, "ids": [4088], "tokens": [START]}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    adding = Tokenizer(tmp_path)
    assert adding._inner.encode("The cat")[0] == 4088, "left to itself it adds one"
    assert 4088 not in adding.encode("The cat")
    _, ids = adding.apply_chat_template(CHAT)
    assert ids.count(4088) == 2


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<think>2 + 2</think>\n\n4", "2 + 2", "4"),
        ("2 + 2</think>4", "2 + 2", "4"),
        ("<think>\n\n</think>\n\n4", "", "4"),
        ("4", "", "4"),
        ("<think>2 + ", "2 +", ""),
    ],
)
def test_thinking_is_split_off_with_or_without_its_opening_tag(text, thinking, answer):
    """B89: newer templates open the block in the prompt, so that only the closing tag is generated."""
    from nanoinfer import LLM

    assert LLM.split_thinking(text) == (thinking, answer)
