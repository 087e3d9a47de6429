"""A model directory with nothing but a config.json: random weights, no tokenizer, token ids in and out."""

import shutil

import pytest
from kit.helpers import params

from nanoinfer import LLM
from nanoinfer.engine.checkpoint import resolve_model


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    shutil.copy(resolve_model("tiny") / "config.json", folder)
    with LLM(folder, load_format="dummy", kvcache_block_size=4, num_kvcache_blocks=32) as engine:
        yield engine


def test_token_ids_work_and_text_is_none(bare):
    (output,) = bare.generate([[1, 2, 3]], params(4), use_tqdm=False)
    assert len(output["token_ids"]) == 4
    assert output["text"] is None


def test_by_hand_and_candidates_too(bare):
    request_id = bare.add_request([5, 6, 7], params(2))
    bare.step()
    (best,) = bare.top_candidates(request_id, 1)
    assert best["text"] is None
    (output,) = bare.step()
    assert output["token_ids"][0] == best["token_id"]


def test_the_live_explorer_shows_token_ids(bare):
    assert bare.explore([[1, 2, 3]], params(2)) is not None
    while not bare.is_finished():
        bare.step()


@pytest.mark.parametrize("call", ["generate", "add_request", "chat"])
def test_text_is_refused_with_the_fix(bare, call):
    prompt = [{"role": "user", "content": "hi"}] if call == "chat" else "hi"
    with pytest.raises(ValueError, match=r"no tokenizer files .*list of token ids"):
        getattr(bare, call)(prompt)
    assert bare.is_finished()
