"""Ctrl-C and errors in the middle of the work: the engine stays usable and nobody else loses anything."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from kit.helpers import POLICIES, all_free, check_pool, params, prompt

from nanoinfer import LLM


def alone(llm, ids, p):
    """What a request gives when nothing goes wrong."""
    (output,) = llm.generate([ids], p, use_tqdm=False)
    llm.reset_prefix_cache()
    return output["token_ids"]


def drain(llm):
    """Step by hand until idle; the outputs by request id."""
    outputs = {}
    for _ in range(500):
        if llm.is_finished():
            return outputs
        outputs |= {output["request_id"]: output for output in llm.step()}
    raise AssertionError(f"no end\n{llm.scheduler}")


def at_call(monkeypatch, owner, name, number, action, after=False):
    """Do `action` before (or after) the `number`-th call of owner.name."""
    original, calls = getattr(owner, name), []

    def wrapped(*args, **kwargs):
        calls.append(name)
        if len(calls) == number and not after:
            action()
        result = original(*args, **kwargs)
        if len(calls) == number and after:
            action()
        return result

    monkeypatch.setattr(owner, name, wrapped)
    return calls


def raise_interrupt():
    raise KeyboardInterrupt


def raise_sigint():
    signal.raise_signal(signal.SIGINT)


def sigint_from_a_thread():
    thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
    thread.start()
    thread.join()


SIGNALS = {"exception": raise_interrupt, "raise_signal": raise_sigint, "thread": sigint_from_a_thread}


@pytest.mark.parametrize("call", [1, 2, 4])
@pytest.mark.parametrize("how", SIGNALS)
def test_ctrl_c_in_a_forward_pass_drops_the_batch_and_only_the_batch(llm, monkeypatch, how, call):
    """A request queued before keeps its place and gives what it would have given."""
    ids = prompt(9, 1)
    expected = alone(llm, ids, params(6))
    other = llm.add_request(ids, params(6))
    with monkeypatch.context() as patch:
        at_call(patch, llm.runner, "launch", call, SIGNALS[how])
        with pytest.raises(KeyboardInterrupt):
            llm.generate([prompt(5, 2), prompt(7, 3)], params(8), use_tqdm=False)
    check_pool(llm.scheduler)
    assert list(llm.scheduler.sequences) == [other]
    outputs = drain(llm)
    assert {request_id: output["token_ids"] for request_id, output in outputs.items()} == {other: expected}
    assert all_free(llm.scheduler)
    assert alone(llm, ids, params(6)) == expected


@pytest.mark.parametrize("call", [1, 3])
@pytest.mark.parametrize(
    "place", ["schedule", "postprocess", "hash_blocks", "allocate", "deallocate"], ids=lambda place: f"in {place}"
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_ctrl_c_inside_a_decision_waits_until_it_is_complete(llm, monkeypatch, place, call, after):
    """A signal between two lines of a queue move would leave blocks that belong to nobody."""
    scheduler = llm.scheduler
    owner = scheduler if place in ("schedule", "postprocess") else scheduler.block_manager
    expected = alone(llm, prompt(9, 1), params(4))
    other = llm.add_request(prompt(9, 1), params(4))
    with monkeypatch.context() as patch:
        at_call(patch, owner, place, call, sigint_from_a_thread, after)
        with pytest.raises(KeyboardInterrupt):
            llm.generate([prompt(5, 2), prompt(7, 3)], params(8), use_tqdm=False)
    check_pool(scheduler)
    assert set(scheduler.sequences) <= {other}
    assert drain(llm)[other]["token_ids"] == expected
    assert all_free(scheduler)


def test_ctrl_c_again_while_the_first_is_cleaned_up_leaves_nothing_queued(llm, monkeypatch):
    """An impatient user; the second signal waits until the batch is gone."""
    with monkeypatch.context() as patch:
        at_call(patch, llm.runner, "launch", 2, raise_interrupt)
        at_call(patch, llm.scheduler, "abort", 1, sigint_from_a_thread)
        with pytest.raises(KeyboardInterrupt):
            llm.generate([prompt(n, n - 5) for n in (5, 6, 7)], params(8), use_tqdm=False)
    assert all_free(llm.scheduler)
    assert llm.is_finished()


def test_ctrl_c_in_on_step_drops_the_batch(llm):
    def on_step(trace, i):
        if i == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        llm.generate([prompt(5), prompt(6, 1)], params(9), on_step=on_step, use_tqdm=False)
    assert all_free(llm.scheduler)
    llm.start_trace()  # the recording of the interrupted call has ended
    llm.stop_trace()


def test_ctrl_c_while_stepping_by_hand_loses_no_result_and_no_request(llm, monkeypatch):
    """A finished earlier, during a generate() for others; C is in flight when the step is interrupted."""
    first = llm.add_request(prompt(4, 1), params(1))
    llm.generate([prompt(5, 2)], params(4), use_tqdm=False)
    second = llm.add_request(prompt(4, 3), params(3))
    with monkeypatch.context() as patch:
        at_call(patch, llm.runner, "launch", 1, raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            llm.step()
    outputs = drain(llm)
    assert sorted(outputs) == [first, second]
    assert [len(outputs[i]["token_ids"]) for i in (first, second)] == [1, 3]


def test_an_undone_step_puts_its_rows_back_in_their_order_before_those_who_waited(llm, monkeypatch):
    ids = [llm.add_request(prompt(5, tag), params(4)) for tag in range(3)]
    llm.step()
    with monkeypatch.context() as patch:
        at_call(patch, llm.runner, "launch", 1, raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            llm.step()
    newcomer = llm.add_request(prompt(5, 3), params(1))
    assert [seq.seq_id for seq in llm.scheduler.waiting] == [*ids, newcomer]
    assert not llm.scheduler.running
    assert sorted(drain(llm)) == [*ids, newcomer]


@pytest.mark.parametrize("policy", POLICIES)
def test_an_interrupted_chunk_is_computed_again_and_counts_once(make_llm, monkeypatch, policy):
    """The chunks are 1 to 3 of 3 whether or not one of them was interrupted."""
    llm = make_llm(kvcache_block_size=4, num_kvcache_blocks=16, max_num_batched_tokens=4, policy=policy)
    expected = alone(llm, prompt(10), params(3))
    llm.add_request(prompt(10), params(3))
    trace = llm.start_trace()
    with monkeypatch.context() as patch:
        at_call(patch, llm.runner, "launch", 1, raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            llm.step()
    (output,) = drain(llm).values()
    llm.stop_trace()
    assert output["token_ids"] == expected
    rows = [step.rows[0] for step in trace.steps]
    assert [(row.num_computed, row.num_scheduled, row.chunk) for row in rows[:3]] == [
        (0, 4, (1, 3)),
        (4, 4, (2, 3)),
        (8, 2, (3, 3)),
    ]


def test_ctrl_c_while_results_become_text_loses_none(llm, monkeypatch):
    """Two requests by hand finish in one step, beside a batch or on their own; decoding the first is interrupted."""
    for batch in ([prompt(5, 3)], []):
        by_hand = [llm.add_request(prompt(4, tag), params(1)) for tag in (1, 2)]
        with monkeypatch.context() as patch:
            at_call(patch, llm.tokenizer, "decode", 1, raise_interrupt)
            with pytest.raises(KeyboardInterrupt):
                llm.generate(batch, params(3), use_tqdm=False) if batch else llm.step()
        assert sorted(drain(llm)) == by_hand


def test_an_error_in_the_forward_pass_comes_through_unchanged(llm, monkeypatch):
    """Not hidden behind an error of the clean-up, whatever state the step was in."""

    def fail():
        raise ZeroDivisionError("mine")

    for owner, name, call, after in (
        (llm.runner, "launch", 2, False),
        (llm.scheduler.block_manager, "hash_blocks", 2, False),
        (llm.scheduler.block_manager, "deallocate", 1, True),
        (llm.scheduler, "_finish_reason", 2, False),
    ):
        with monkeypatch.context() as patch:
            at_call(patch, owner, name, call, fail, after)
            with pytest.raises(ZeroDivisionError, match="mine"):
                llm.generate([prompt(5), prompt(6, 1)], params(1 if name != "launch" else 3), use_tqdm=False)
        assert llm.is_finished(), name
        assert not llm.core.sequences, name
        check_pool(llm.scheduler)
        assert len(llm.generate([prompt(5)], params(2), use_tqdm=False)[0]["token_ids"]) == 2


def test_a_callback_that_stops_the_recording_loses_no_result(llm):
    def on_step(trace, i):
        if i == 1:
            llm.stop_trace()

    trace = llm.generate([prompt(5), prompt(6, 1)], params(5), on_step=on_step, use_tqdm=False)
    assert len(trace.steps) == 2
    assert [len(output["token_ids"]) for output in trace.outputs] == [5, 5]
    llm.start_trace()
    llm.stop_trace()


def test_aborting_one_of_the_batch_from_on_step_ends_the_others_normally(llm):
    """generate() returns; the aborted one keeps its place, its tokens so far and its reason."""
    expected = alone(llm, prompt(6, 1), params(5))
    dropped = llm.core.next_id

    def on_step(trace, i):
        if i == 1:
            llm.abort(dropped)

    trace = llm.generate([prompt(5), prompt(6, 1)], params(5), on_step=on_step, use_tqdm=False)
    first, second = trace.outputs
    assert (first["request_id"], first["finish_reason"], len(first["token_ids"])) == (dropped, "abort", 2)
    assert (second["finish_reason"], second["token_ids"]) == ("length", expected)


def test_aborting_the_whole_batch_from_on_step_ends_generate(llm):
    def on_step(trace, i):
        if i == 0:
            for request_id in list(trace.requests):
                llm.abort(request_id)

    trace = llm.generate([prompt(5), prompt(6, 1)], params(5), on_step=on_step, use_tqdm=False)
    assert [output["finish_reason"] for output in trace.outputs] == ["abort", "abort"]


@pytest.mark.parametrize("overlap", [False, True])
def test_closing_from_on_step_ends_generate_with_a_plain_word(make_llm, overlap):
    llm = make_llm(overlap=overlap)
    with pytest.raises(RuntimeError, match="this engine is closed"):
        llm.generate([prompt(5)], params(5), on_step=lambda trace, i: llm.close(), use_tqdm=False)
    assert llm.is_finished()


def test_a_request_added_from_on_step_is_not_taken_for_one_of_the_batch(llm):
    """Its result waits for step(); generate() returns its own, complete."""
    added = []

    def on_step(trace, i):
        if i == 0:
            added.append(llm.add_request(prompt(4, 3), params(1)))

    trace = llm.generate([prompt(5), prompt(6, 1)], [params(2), params(6)], on_step=on_step, use_tqdm=False)
    assert [len(output["token_ids"]) for output in trace.outputs] == [2, 6]
    assert [output["request_id"] for output in llm.step()] == added
    assert llm.is_finished()


def test_a_request_aborted_while_its_step_runs_has_no_result_and_a_row(llm, monkeypatch):
    """By another thread, say: the sample is dropped and the trace still folds."""
    trace = llm.start_trace()
    dropped, kept = llm.add_request(prompt(5), params(3)), llm.add_request(prompt(6, 1), params(3))
    with monkeypatch.context() as patch:
        at_call(patch, llm.runner, "launch", 2, lambda: llm.abort(dropped))
        outputs = drain(llm)
    llm.stop_trace()
    assert list(outputs) == [kept]
    assert [(row.seq_id, row.token_id is None) for row in trace.steps[1].rows] == [(dropped, True), (kept, False)]
    assert trace.steps[1].rows[0].block_table == trace.steps[0].rows[0].block_table
    assert trace.state(1).waiting == []
    assert trace.state(1).running == [kept]
    assert "is dropped" not in trace.explain(1), "an aborted request has nothing more to compute"


def test_the_handler_of_the_user_is_back_after_a_run(llm):
    def mine(number, frame):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, mine)
    try:
        llm.generate([prompt(5)], params(3), use_tqdm=False)
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, previous)


def test_an_engine_works_in_a_thread_that_is_not_the_main_one():
    """Where no signal handler can be set."""
    results = []

    def work():
        with LLM("tiny", kvcache_block_size=4, num_kvcache_blocks=16) as llm:
            results.extend(llm.generate([prompt(5)], params(3), use_tqdm=False))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [len(output["token_ids"]) for output in results] == [3]


def test_an_engine_that_outlives_the_signal_handlers_ends_in_silence():
    """When the interpreter ends, handlers go before the objects that may still abort a request."""
    code = (
        "from nanoinfer.core.interrupt import uninterrupted\n"
        "class Late:\n"
        "    def __del__(self):\n"
        "        with uninterrupted():\n"
        "            print('block ended')\n"
        "late = Late()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("block ended\n", "")


def test_a_held_back_signal_reaches_whatever_handler_was_there():
    """With the system's own handler, Ctrl-C ends the process after the protected block, not never."""
    code = (
        "import os, signal\n"
        "from nanoinfer.core.interrupt import uninterrupted\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "with uninterrupted():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('block ended', flush=True)\n"
        "print('swallowed')\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == -signal.SIGINT
    assert result.stdout == "block ended\n"
