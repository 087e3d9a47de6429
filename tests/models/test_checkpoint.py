"""Model names, and the text side of a checkpoint."""

import json

import huggingface_hub
import pytest
from kit.checkpoints import save_reference
from transformers import AutoTokenizer

from nanoinfer.engine.checkpoint import resolve_model
from nanoinfer.engine.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(resolve_model("tiny"))


def test_tiny_ships_with_the_package():
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {f.name for f in resolve_model("tiny").iterdir()}


def test_a_directory_is_itself(tmp_path):
    assert resolve_model(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["nowhere", "/no/such/place", "./nowhere", "a/b/c", "", "~/nowhere", "../a/b"])
def test_no_such_directory(name):
    with pytest.raises(ValueError, match=r"no such directory.*tiny"):
        resolve_model(name)


def test_a_hub_id_is_downloaded_without_the_other_frameworks_weights(monkeypatch, tmp_path):
    asked = {}

    def snapshot_download(repo, allow_patterns):
        asked[repo] = allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert resolve_model("Qwen/Qwen3-0.6B") == tmp_path
    assert "*.safetensors" in asked["Qwen/Qwen3-0.6B"]
    assert not any("bin" in pattern for pattern in asked["Qwen/Qwen3-0.6B"])


def test_a_hub_id_that_cannot_be_fetched(monkeypatch):
    def snapshot_download(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(RuntimeError, match=r"(?s)Qwen/Qwen3-0\.6B.*no route to host.*directory.*tiny"):
        resolve_model("Qwen/Qwen3-0.6B")


def test_text_survives_a_round_trip(tokenizer):
    text = "The café costs 12 €, naïve 🙂\n  and indented"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("") == []


def test_special_tokens_are_read_but_neither_added_nor_shown(tokenizer):  # B90
    ids = tokenizer.encode("hello<|im_end|>")
    assert ids[-1] == 4089
    assert ids[:-1] == tokenizer.encode("hello")
    assert tokenizer.decode(ids) == "hello"


def test_a_tokenizer_that_likes_to_add_a_start_token_does_not(tmp_path):  # B90
    for file in resolve_model("tiny").glob("tokenizer*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    start = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [start, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [start, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [4088], "tokens": ["<|im_start|>"]}},
    }
    raw = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw | {"post_processor": template}))
    assert AutoTokenizer.from_pretrained(tmp_path).encode("hello")[0] == 4088
    tokenizer = Tokenizer(tmp_path)
    assert 4088 not in tokenizer.encode("hello")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])[1].count(4088) == 2


def test_chat_is_rendered_once_and_gives_text_and_its_ids(tokenizer):
    chat = [{"role": "user", "content": "Hi"}]
    text, ids = tokenizer.apply_chat_template(chat)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert ids == tokenizer.encode(text)
    assert ids.count(4088) == 2
    assert tokenizer.apply_chat_template(chat, add_generation_prompt=False)[0] + "<|im_start|>assistant\n" == text


def test_a_bad_conversation_is_a_clear_error(tokenizer):
    with pytest.raises(ValueError, match="chat template"):
        tokenizer.apply_chat_template([{"content": "no role"}, 3])


def test_a_directory_without_a_tokenizer(tmp_path):
    save_reference(tmp_path)
    assert load_tokenizer(tmp_path) is None


def test_a_damaged_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="cannot load the tokenizer"):
        Tokenizer(tmp_path).encode("hi")
