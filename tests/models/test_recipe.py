"""The recipe of the tiny model: the generator is pinned, and its scripts give what the shipped model has."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "docs" / "recipe"
SHIPPED = ROOT / "nanoinfer" / "models" / "tiny"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

TURN = r"<\|im_start\|>{role}\n(?:(?!<\|)[\s\S])+<\|im_end\|>\n"
CHAT = re.compile(f"(?:{TURN.format(role='system')})?(?:{TURN.format(role='user')}{TURN.format(role='assistant')})+")
BARE_STORY = re.compile(r"(?:(?!<\|)[\s\S])+<\|endoftext\|>")


def run(script: str, *arguments: object) -> str:
    """Run a script of the recipe as a reader would, and return what it printed."""
    command = [sys.executable, str(RECIPE / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_corpus(path: Path, documents: int, seed: int, *options: str) -> Path:
    run("make_corpus.py", path, "--documents", documents, "--seed", seed, *options)
    return path


def texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("seed", "options", "checksum"),
    [
        (0, (), "2c769c15b90f1b58f051750d7677dfaa7429f4b74c7a572de22eb57c065f6eeb"),
        (7, (), "b68e647023396beee3aee3086d5e2a004dfab8a454700ca799bde148dba94bee"),
        (0, ("--recall",), "facd2c7682dbcecaa7c55ed2e3dfa4f7748aaf87e4b0316447972be4bd9375c2"),
        (7, ("--recall",), "7a6585079e0664ea83796db6819af31f9f9d46c739053827616c10045a7d02b9"),
    ],
    ids=["ordinary-0", "ordinary-7", "recall-0", "recall-7"],
)
def test_a_seed_always_gives_the_same_documents(tmp_path, seed, options, checksum):
    corpus = make_corpus(tmp_path / "corpus.jsonl", 1000, seed, *options)
    assert hashlib.sha256(corpus.read_bytes()).hexdigest() == checksum


@pytest.mark.parametrize("options", [(), ("--recall",)])
def test_every_document_is_a_chat_or_a_bare_story(tmp_path, options):
    documents = texts(make_corpus(tmp_path / "corpus.jsonl", 1000, 3, *options))
    assert len(documents) == 1000
    bare = [text for text in documents if BARE_STORY.fullmatch(text)]
    assert [text for text in documents if not CHAT.fullmatch(text) and text not in bare] == []
    assert bool(bare) == (not options), "ordinary documents include bare stories, recall documents none"


def test_every_answer_about_boxes_and_places_can_be_copied_from_its_question(tmp_path):
    recall = "".join(texts(make_corpus(tmp_path / "recall.jsonl", 200, 5, "--recall")))
    question = r"user\n(.*) (?:What is in|Where is) (.*)\?<\|im_end\|>\n.*assistant\n(.*)<\|im_end\|>"
    asked = re.findall(question, recall)
    assert len(asked) > 100
    assert [x for x in asked if not facts_hold(*x)] == []


def facts_hold(facts: str, subject: str, answer: str) -> bool:
    return answer in facts and answer.lower().startswith(subject.lower())


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Path:
    corpus = make_corpus(tmp_path / "corpus.jsonl", 300, 1)
    plain = tmp_path / "plain.txt"
    plain.write_text("A truth that everybody at the café knows.\n" * 500, encoding="utf-8")
    run("make_tokenizer.py", tmp_path / "tokenizer", corpus, plain, "--vocab-size", 500)
    return tmp_path / "tokenizer"


def test_the_tokenizer_follows_the_rules_of_the_shipped_one(tokenizer_folder):
    made, shipped = (json.loads((x / "tokenizer.json").read_text("utf-8")) for x in (tokenizer_folder, SHIPPED))
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        assert made[part] == shipped[part], part
    assert [token | {"id": token["id"] + 4096 - 500} for token in made["added_tokens"]] == shipped["added_tokens"]

    made, shipped = (json.loads((x / "tokenizer_config.json").read_text("utf-8")) for x in (tokenizer_folder, SHIPPED))
    made["added_tokens_decoder"] = {str(int(k) + 4096 - 500): v for k, v in made["added_tokens_decoder"].items()}
    assert made == shipped


def test_the_tokenizer_loses_no_text(tokenizer_folder):
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 500
    text = "<|im_start|>user\nWho's at the café? 42 日本 🙂\n\n  Nobody.<|im_end|>\n"
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert ids[0] == tokenizer.token_to_id("<|im_start|>") == 492
    assert len(ids) < len(text.encode()), "no merges were learned"


def test_publish_format_writes_the_shipped_layout(tmp_path, tokenizer_folder):
    """A folder as transformers 5 saves the shape of the shipped model becomes the shipped files, byte for byte."""
    saved = json.loads((SHIPPED / "config.json").read_text("utf-8"))
    saved["rope_parameters"] = {"rope_type": "default", "rope_theta": saved.pop("rope_theta")}
    saved["dtype"] = saved.pop("torch_dtype")
    saved["layer_types"] = ["full_attention"] * saved["num_hidden_layers"]
    saved["transformers_version"] = "5.0.0"
    trained = tmp_path / "trained"
    trained.mkdir()
    (trained / "config.json").write_text(json.dumps(saved))
    (trained / "generation_config.json").write_text('{"eos_token_id": [4089, 4087], "pad_token_id": 4087}')
    (trained / "model.safetensors").write_bytes(b"weights")
    (trained / "model.safetensors").chmod(0o600)

    run("publish_format.py", trained, tokenizer_folder, tmp_path / "tiny")

    written = tmp_path / "tiny"
    assert tuple(sorted(x.name for x in written.iterdir())) == FILES
    for name in ("config.json", "generation_config.json"):
        assert (written / name).read_text() == (SHIPPED / name).read_text(), name
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (written / name).read_bytes() == (tokenizer_folder / name).read_bytes(), name
    assert (written / "model.safetensors").read_bytes() == b"weights"
    assert (written / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_a_missing_file_is_named(tmp_path):
    command = [sys.executable, RECIPE / "publish_format.py", tmp_path, tmp_path, tmp_path / "tiny"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"no such file: {tmp_path / 'config.json'}" in done.stderr
