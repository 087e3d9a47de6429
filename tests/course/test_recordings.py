"""The committed recordings are what the present code would record."""

import gzip

import pytest

from nanoinfer.course.recordings import CHECKOUT, recorded
from nanoinfer.course.traces import ON_A_GPU, RECORDINGS, main, simulated_run

COMMITTED = sorted(path.name.removesuffix(".jsonl.gz") for path in CHECKOUT.glob("*"))


def differences(a, b):
    """What two runs disagree about, times left aside."""
    parts = {
        "requests": lambda t: [(r.seq_id, r.prompt_token_ids, r.sampling_params) for r in t.requests.values()],
        "steps": lambda t: [step.decision for step in t.steps],
        "events": lambda t: t.events,
        "outputs": lambda t: [(o["token_ids"], o["finish_reason"]) for o in t.outputs],
    }
    return [name for name, part in parts.items() if part(a) != part(b)]


def test_there_is_a_recipe_for_each_file_and_a_file_for_each_recipe():
    assert sorted(RECORDINGS | ON_A_GPU) == COMMITTED


@pytest.mark.parametrize("name", COMMITTED)
def test_a_recording_is_small_and_names_no_folder_of_a_machine(name):
    path = CHECKOUT / f"{name}.jsonl.gz"
    assert path.stat().st_size < 200_000
    assert b'"/' not in gzip.decompress(path.read_bytes())


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_decides_as_the_code_does(name):
    stale = differences(recorded(name), RECORDINGS[name]())
    assert not stale, f"{name} differs in {stale}; python -m nanoinfer.course.traces records it anew"


@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_recording_of_a_gpu_decides_as_the_code_does(name):
    """The simulator gets the tokens that the model drew; prompts begin with the request's number."""
    trace = recorded(name)
    prompts = [request.prompt_token_ids for request in trace.requests.values()]
    drawn = [output["token_ids"] for output in trace.outputs]
    again = simulated_run(name, lambda ids: drawn[ids[0]][len(ids) - len(prompts[ids[0]])])
    stale = differences(trace, again)
    assert not stale, f"{name} differs in {stale}; python -m nanoinfer.course.traces records it anew on a GPU"


def test_a_change_is_noticed():
    """Otherwise the test above would check nothing."""
    from nanoinfer import simulate

    prompts = [[1, 2, 3, 4, 5], [6, 7, 8]]
    a, b = (simulate(prompts, kvcache_block_size=2, max_num_batched_tokens=budget) for budget in (8, 4))
    assert differences(a, b) == ["steps", "events"]
    assert differences(a, simulate(prompts, kvcache_block_size=2, max_num_batched_tokens=8)) == []


def test_the_folder_beside_the_notebook_comes_first(tmp_path, monkeypatch):
    from nanoinfer import simulate

    monkeypatch.chdir(tmp_path)
    (tmp_path / "traces").mkdir()
    simulate([[1, 2, 3]]).save(tmp_path / "traces" / "questions.jsonl.gz")
    assert len(recorded("questions").requests) == 1


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"no recorded trace 'nothing'; there are .*questions"):
        recorded("nothing")


def test_the_command_writes_all_of_them(tmp_path, monkeypatch):
    from nanoinfer import simulate

    monkeypatch.setattr("nanoinfer.course.traces.RECORDINGS", {"one": lambda: simulate([[1, 2, 3]])})
    monkeypatch.setattr("nanoinfer.course.traces.ON_A_GPU", {})
    main(tmp_path / "traces")
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["one.jsonl.gz"]
