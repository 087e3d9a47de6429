"""When a request ends, and why."""

import pytest
from kit.helpers import all_free, config, limits, make_core, params, prompt, run_all

from nanoinfer import SamplingParams, Scheduler, Sequence, simulate

EOS = 3


def scripted(*completion):
    """A token function that gives these tokens, whatever the prompt of `n` tokens was."""

    def token_fn(ids, n=4):
        return completion[len(ids) - n]

    return token_fn


def run(completion, **more):
    settings = {"max_tokens": len(completion), "ignore_eos": False} | more
    trace = simulate(
        [prompt(4, 9)], SamplingParams(**settings), token_fn=scripted(*completion), eos=EOS, **limits(4, 8)
    )
    assert len(trace.steps[-1].free_blocks) == 8
    assert (trace.steps[-1].waiting, trace.steps[-1].running) == ([], [])
    return trace.outputs[0]["token_ids"], trace.outputs[0]["finish_reason"]


def test_eos_in_the_prompt_does_not_stop():
    """B75."""
    trace = simulate([[EOS, 5, EOS]], params(2, ignore_eos=False), token_fn=lambda ids: 8, eos=EOS, **limits(4, 8))
    assert (trace.outputs[0]["token_ids"], trace.outputs[0]["finish_reason"]) == ([8, 8], "length")


def test_eos_as_the_first_token_ends_the_request_with_its_blocks_free():
    """B75: the completion is [3], eos itself."""
    assert run([EOS, 8, 8]) == ([EOS], "eos")


def test_ignore_eos_runs_to_max_tokens():
    """B75."""
    assert run([EOS, EOS, 8], ignore_eos=True) == ([EOS, EOS, 8], "length")


def test_eos_on_the_last_allowed_token_is_eos():
    """B75: eos before length."""
    assert run([8, 8, EOS]) == ([8, 8, EOS], "eos")


def test_a_stop_id_ends_with_reason_stop():
    assert run([8, 9, 8], stop_token_ids=[9]) == ([8, 9], "stop")


def test_a_stop_id_on_the_last_allowed_token_is_stop():
    assert run([8, 8, 9], stop_token_ids=[9]) == ([8, 8, 9], "stop")


def test_eos_wins_over_the_same_stop_id():
    assert run([EOS, 8], stop_token_ids=[EOS]) == ([EOS], "eos")


def test_a_stop_id_that_equals_eos_still_stops_when_eos_is_ignored():
    assert run([EOS, 8], stop_token_ids=[EOS], ignore_eos=True) == ([EOS], "stop")


def test_any_of_several_eos_ids_ends():
    trace = simulate([prompt(4)], params(5, ignore_eos=False), token_fn=lambda ids: 70 + len(ids), eos=[99, 76])
    assert (trace.outputs[0]["token_ids"], trace.outputs[0]["finish_reason"]) == ([74, 75, 76], "eos")


@pytest.mark.parametrize("token", [-1, 1.0, None, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_what_token_fn_gives_must_be_a_token_id(token, overlap):
    """A negative one stands for a token that is not known yet, and would be lost."""
    with pytest.raises(ValueError, match=rf"token_fn\(token_ids\) must .*, got {token}"):
        simulate([prompt(4)], params(3), token_fn=lambda ids: token, overlap=overlap)


def test_the_sample_of_a_middle_chunk_cannot_end_a_request():
    """The dropped sample is eos; the prompt goes on."""
    core = make_core(config(4, 8, B=4, eos=(EOS,)))
    core.runner.token_fn = lambda ids: EOS
    core.add(prompt(10, 1), params(4, ignore_eos=False))
    assert core.step() == []
    assert core.step() == []
    (seq,) = core.step()
    assert (seq.completion_token_ids, seq.finish_reason) == ([EOS], "eos")


def test_one_token_finishes_on_the_prefill_step():
    """B56: nothing is left running and every block is free."""
    trace = simulate([prompt(9)], params(1), **limits(4, 8))
    (step,) = trace.steps
    assert (step.phase, step.running, step.waiting) == ("prefill", [], [])
    assert sorted(step.free_blocks) == list(range(8))
    assert [e.kind for e in trace.events if e.kind in ("run", "finish")] == ["run", "finish"]


def test_a_thousand_requests_leave_no_growth():
    """B56: what the engine keeps does not depend on how many requests it has served."""
    core = make_core(config(4, 8))

    def footprint():
        manager = core.scheduler.block_manager
        owned = (core.sequences, core.scheduler.sequences, core.scheduler.waiting, core.scheduler.running)
        assert len(manager.hash_to_block_id) <= 8
        return [len(container) for container in owned], len(manager.blocks), len(manager.free_block_ids)

    before = footprint()
    for i in range(1000):
        core.add(prompt(9, i), params(1))
        run_all(core)
        core.runner.plans.clear()
        assert footprint() == before
    assert core.next_id == 1000
    assert all_free(core.scheduler)


@pytest.mark.parametrize("max_tokens", [0, -1, -64, 1.5, True, None, "3"])
def test_a_max_tokens_that_is_no_positive_integer_is_refused(max_tokens):
    """B56."""
    with pytest.raises(ValueError, match="max_tokens") as error:
        SamplingParams(max_tokens=max_tokens)
    assert str(max_tokens) in str(error.value)


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": "hot"},
        {"top_k": -2},
        {"top_k": 1.0},
        {"top_p": 0},
        {"top_p": 1.01},
        {"top_p": float("nan")},
        {"stop_token_ids": [-1]},
        {"stop_token_ids": [2.0]},
        {"stop_token_ids": 7},
        {"stop_token_ids": "7"},
        {"ignore_eos": 1},
        {"seed": 1.5},
    ],
    ids=str,
)
def test_a_sampling_parameter_out_of_range_names_itself(bad):
    ((name, _),) = bad.items()
    with pytest.raises(ValueError, match=name):
        SamplingParams(**bad)


def test_top_k_off_and_zero_and_huge_are_accepted():
    """B70: 0 and -1 are off, above the vocabulary is the vocabulary."""
    assert [SamplingParams(top_k=k).top_k for k in (0, -1, 5, 10**9)] == [0, -1, 5, 10**9]


def test_sampling_params_are_normalised_copies():
    stops = [4, 5]
    p = SamplingParams(stop_token_ids=stops)
    stops.append(6)
    assert p.stop_token_ids == (4, 5)
    with pytest.raises(AttributeError):
        p.max_tokens = 3
    assert SamplingParams(**p.to_dict()) == p


def test_a_finished_sequence_cannot_be_queued_again():
    scheduler = Scheduler(config(4, 8))
    seq = Sequence(0, prompt(4), params(1), 4)
    scheduler.add(seq)
    scheduler.postprocess(scheduler.schedule(), [8])
    with pytest.raises(ValueError, match=r"sequence 0 has finished \(length\); make a new Sequence"):
        scheduler.add(seq)
    assert scheduler.is_finished()
