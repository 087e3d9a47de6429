"""The recipe's training and evaluation, on a CPU; `tests/models/test_recipe.py` has its other scripts."""

import json
import math
import re

import pytest

from nanoinfer import LLM, SamplingParams
from nanoinfer.engine.checkpoint import resolve_model

SHAPE = ["--hidden", 32, "--layers", 2, "--heads", 2, "--kv-heads", 1, "--head-dim", 16, "--intermediate", 64]


@pytest.fixture
def corpus(load, run, tmp_path):
    path = tmp_path / "corpus.jsonl"
    run(load("recipe/make_corpus"), path, "--documents", 200, "--seed", 1)
    return path


def test_from_documents_to_a_model_that_the_engine_runs(load, run, corpus, tmp_path, monkeypatch):
    tokenizer, trained, published = (tmp_path / name for name in ("tokenizer", "trained", "published"))
    run(load("recipe/make_tokenizer"), tokenizer, corpus, "--vocab-size", 500)
    train = load("recipe/train")
    monkeypatch.setattr(train, "REPORT_EVERY", 1)
    run(train, tokenizer, trained, corpus, "--minutes", 0.02, "--window", 64, "--batch", 4, *SHAPE)
    log = json.loads((trained / "train_log.json").read_text())
    assert [record["step"] for record in log] == list(range(1, len(log) + 1))
    assert [record["tokens"] for record in log[:2]] == [4 * 64, 2 * 4 * 64][: len(log)]
    assert log[0]["loss"] == pytest.approx(math.log(500), rel=0.05)  # knows nothing yet
    run(load("recipe/publish_format"), trained, tokenizer, published)
    with LLM(str(published), kvcache_block_size=16, num_kvcache_blocks=8) as llm:
        assert (llm.config.vocab_size, llm.config.max_model_len) == (500, 64)
        (output,) = llm.generate(["A fox"], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
    assert len(output["token_ids"]) == 4


def test_only_matrices_decay_and_the_rate_follows_the_clock(load):
    import torch

    train = load("recipe/train")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    matrices, others = train.make_optimizer(model, 1e-3, "cpu").param_groups
    assert ([weight.dim() for weight in matrices["params"]], matrices["weight_decay"]) == ([2], 0.1)
    assert ([weight.dim() for weight in others["params"]], others["weight_decay"]) == ([1, 1, 1], 0.0)
    assert train.rate_factor(0, 0.0) == pytest.approx(1 / 200)
    assert train.rate_factor(500, 0.29) == 1
    assert train.rate_factor(500, 1.0) == pytest.approx(0.02)


def test_the_shipped_model_answers_held_out_questions(load, run, tmp_path, monkeypatch, capsys):
    held_out = tmp_path / "held_out.jsonl"
    run(load("recipe/make_corpus"), held_out, "--documents", 12, "--seed", 3)
    evaluate = load("recipe/evaluate")
    monkeypatch.setattr(evaluate, "PROMPTS", ("What is 7 plus 5?",))
    capsys.readouterr()
    run(evaluate, resolve_model("tiny"), held_out, "--questions", 8, "--batch", 8)
    printed = capsys.readouterr().out
    shares = [tuple(map(int, pair)) for pair in re.findall(r"(\d+)% of (\d+)", printed)]
    assert sum(count for _, count in shares) == 8
    assert sum(percent * count for percent, count in shares) >= 50 * 8
    assert "12" in printed.split("### What is 7 plus 5?")[1]


def test_a_wrong_answer_is_no_match(load):
    evaluate = load("recipe/evaluate")
    sum_, secret = (
        evaluate.Question([{"role": "user", "content": asked}], answer)
        for asked, answer in (("What is 2 plus 2?", "2 plus 2 is 4."), ("Who won in 1990?", "I do not know that."))
    )
    assert (evaluate.kind_of(sum_), evaluate.kind_of(secret)) == ("plus", "unknown")
    assert evaluate.is_right(sum_, "plus", "2 plus 2 is 4.")
    assert not evaluate.is_right(sum_, "plus", "2 plus 2 is 5.")
    assert evaluate.is_right(secret, "unknown", "Sorry, I do not know.")
    assert not evaluate.is_right(secret, "unknown", "I won.")
