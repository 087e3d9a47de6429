"""The live explorer without a browser: messages of its buttons in, steps and states out."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest
from kit.helpers import params

from nanoinfer import SamplingParams

pytest.importorskip("anywidget")
from nanoinfer.explore import live_feed
from nanoinfer.explore.live import LiveExplorer
from nanoinfer.explore.live_sequences import candidates_of
from nanoinfer.explore.pack import pack

PROMPTS = ["Once upon a time there was a fox", "Once upon a time there was a small bird", "The river"]


@pytest.fixture
def open_live(monkeypatch):
    """Makes explorers whose messages to the page are kept in `sent`."""
    made = []

    def open_live(llm, prompts=PROMPTS, sampling_params=None, **more):
        explorer = LiveExplorer(llm, prompts, sampling_params or params(8), decode=llm.tokenizer.decode, **more)
        explorer.sent = []
        monkeypatch.setattr(explorer, "send", lambda message, buffers=None: explorer.sent.append(message))
        made.append(explorer)
        return explorer

    yield open_live
    for explorer in made:
        explorer.close()


@pytest.fixture
def small(make_llm):
    """An engine whose pool is too small for all prompts at once."""
    return make_llm(kvcache_block_size=4, num_kvcache_blocks=14, max_num_batched_tokens=16)


def press(explorer, kind, **message):
    """What the page does: one message, to whoever listens."""
    explorer._handle_custom_msg({"type": kind, **message}, [])


def note(explorer):
    return explorer.status["note"]


def states(explorer):
    return {row["id"]: row["status"] for row in explorer.status["sequences"]}


def run(explorer, until=None):
    async def main():
        press(explorer, "run", until=until)
        await explorer.wait()

    asyncio.run(main())


def frames_sent(explorer):
    return [(m["chunk"]["start"], m["chunk"]["end"]) for m in explorer.sent if m["type"] == "chunk"]


# ---- steps -----------------------------------------------------------------------------------


def test_a_press_of_step_is_a_step_and_a_chunk(llm, open_live):
    explorer = open_live(llm)
    for i in range(3):
        press(explorer, "step")
        assert len(explorer.trace.steps) == i + 1
        assert explorer.status["newest"] == i
    assert frames_sent(explorer) == [(0, 1), (1, 2), (2, 3)]


def test_a_press_of_step_is_told_at_once_however_soon_it_follows(llm, open_live):
    explorer = open_live(llm)

    async def main():
        for i in range(3):
            press(explorer, "step")
            assert frames_sent(explorer)[-1] == (i, i + 1)

    asyncio.run(main())


def test_run_ends_when_all_is_done_and_sends_every_step_once(llm, open_live):
    explorer = open_live(llm)
    run(explorer)
    assert llm.is_finished()
    assert note(explorer) == "Idle: every request has finished."
    assert not explorer.status["running"]
    edges = [0, *(end for _, end in frames_sent(explorer))]
    assert frames_sent(explorer) == list(pairwise(edges))
    assert edges[-1] == len(explorer.trace.steps)
    assert [row["text"] for row in explorer.status["sequences"]] == [
        output["text"] for output in sorted(explorer.trace.outputs, key=lambda o: o["request_id"])
    ]
    press(explorer, "step")
    assert "Nothing to do" in note(explorer)


def test_a_run_sends_at_most_some_twenty_chunks_a_second(llm, open_live, monkeypatch):
    monkeypatch.setattr(live_feed, "SEND_EVERY", 1000)
    explorer = open_live(llm)
    run(explorer)
    assert len(frames_sent(explorer)) <= 2, "one at the start, one at the end"
    assert frames_sent(explorer)[-1][1] == len(explorer.trace.steps)


@pytest.mark.parametrize("until", ["finish", "preemption", 5])
def test_run_until(small, open_live, until):
    explorer = open_live(small, sampling_params=[params(n) for n in (18, 18, 16)])
    run(explorer, until)
    steps = explorer.trace.steps
    ends = [e.step for e in explorer.trace.events if e.kind == "finish"]
    reached = {
        "finish": [s.index in ends for s in steps],
        "preemption": [bool(s.preempted) for s in steps],
        5: [s.index == 5 for s in steps],
    }[until]
    assert reached == [False] * (len(steps) - 1) + [True]
    assert note(explorer).startswith(f"Stopped at step {len(steps) - 1}")
    if until == "preemption":
        assert states(explorer)[steps[-1].preempted[0].victim] == "preempted"
    run(explorer, 2)
    assert "already run" in note(explorer)
    assert explorer.status["failed"]
    run(explorer, "the end")
    assert "until must be" in note(explorer)


def test_run_takes_turns_with_other_work(llm, open_live):
    explorer = open_live(llm, sampling_params=params(30))
    seen = []

    async def main():
        press(explorer, "run", until=None)
        while explorer.running:
            seen.append(len(explorer.trace.steps))
            if len(seen) == 5:
                press(explorer, "abort", id=min(explorer.trace.requests))
                press(explorer, "add", prompt="The", max_tokens=3, temperature=0)
            if len(seen) == 8:
                press(explorer, "step")
                assert "running" in note(explorer)
                press(explorer, "stop")
            await asyncio.sleep(0)
        await explorer.wait()

    asyncio.run(main())
    assert max(b - a for a, b in pairwise(seen)) == 1, "somebody else's turn after each step"
    assert "Stopped after step" in note(explorer)
    assert not llm.is_finished()
    first, *_, last = states(explorer).values()
    assert (first, last) != ("decode", "waiting")
    assert first == "aborted"


def test_stopped_and_run_again_at_once_there_is_one_run(llm, open_live):
    explorer = open_live(llm)

    async def main():
        press(explorer, "run", until=None)
        press(explorer, "stop")
        press(explorer, "run", until=None)
        before = len(explorer.trace.steps)
        await asyncio.sleep(0)
        assert len(explorer.trace.steps) == before + 1
        await explorer.wait()

    asyncio.run(main())
    assert llm.is_finished()


def test_without_an_event_loop_run_says_so(llm, open_live):
    explorer = open_live(llm)
    with pytest.raises(RuntimeError, match=r"needs an event loop.*step\(\)"):
        explorer.run()
    assert not explorer.running


# ---- requests ---------------------------------------------------------------------------------


def test_refused_requests_are_told_and_the_engine_is_as_before(llm, open_live):
    explorer = open_live(llm)
    before = str(llm.scheduler)
    for message in (
        {"prompt": "", "max_tokens": 4, "temperature": 0},
        {"prompt": "x", "max_tokens": None, "temperature": 0},
        {"prompt": "x", "max_tokens": 4, "temperature": -1},
        {"prompt": "x " * 5000, "max_tokens": 4, "temperature": 0},
    ):
        press(explorer, "add", **message)
        assert note(explorer)
        assert explorer.status["failed"]
    press(explorer, "abort", id=999)
    assert "999" in note(explorer)
    press(explorer, "no such button")
    assert str(llm.scheduler) == before
    assert explorer.status["accepted"]["count"] == 0
    press(explorer, "step")
    assert not explorer.status["failed"]


def test_reset_starts_from_nothing(llm, open_live):
    explorer = open_live(llm)
    press(explorer, "step")
    press(explorer, "add", prompt="One more", max_tokens=4, temperature=0)
    llm.add_request("Somebody else's")
    first = explorer.trace
    press(explorer, "reset")
    assert explorer.trace is not first
    assert explorer.trace.steps == []
    assert explorer.trace.header.initial.hash_index == {}
    assert [request.prompt for request in explorer.trace.requests.values()] == PROMPTS
    assert len(llm.scheduler.waiting) == 3
    assert set(states(explorer).values()) == {"waiting"}
    assert explorer.sent[-1]["type"] == "trace"
    run(explorer)
    assert llm.is_finished()


def test_reset_while_it_runs(llm, open_live):
    explorer = open_live(llm)

    async def main():
        press(explorer, "run", until=None)
        await asyncio.sleep(0)
        press(explorer, "reset")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert explorer.trace.steps == []
        assert not explorer.running

    asyncio.run(main())


# ---- interrupts and errors ----------------------------------------------------------------------


def fail_at(monkeypatch, llm, number, action):
    """`action` in place of the `number`-th forward pass."""
    runner = llm.core.runner
    original, calls = runner.launch, []

    def failing(plan):
        calls.append(plan)
        if len(calls) == number:
            action()
        return original(plan)

    monkeypatch.setattr(runner, "launch", failing)


@pytest.mark.parametrize("ignored", [True, False], ids=["between cells", "in a cell"])
def test_an_interrupt_during_a_run(llm, open_live, monkeypatch, ignored):
    """Between two cells the kernel ignores the signal; a run must not."""
    fail_at(monkeypatch, llm, 3, lambda: signal.raise_signal(signal.SIGINT))
    explorer = open_live(llm)
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    outside = signal.getsignal(signal.SIGINT)
    run_in_loop(explorer, outside)
    assert "Interrupted" in note(explorer)
    assert explorer.status["failed"]
    assert not explorer.running
    assert len(explorer.trace.steps) == 2
    press(explorer, "step")
    assert len(explorer.trace.steps) == 3
    assert explorer.trace.state(-1).running == [seq.seq_id for seq in llm.scheduler.running]
    run(explorer)
    assert llm.is_finished()
    assert frames_sent(explorer)[-1][1] == len(explorer.trace.steps)


def test_a_message_on_another_thread_takes_its_turn_between_two_steps(llm, open_live, monkeypatch):
    """JupyterLab delivers some on a thread of their own: an abort must not touch the engine in the middle of a step."""
    explorer = open_live(llm, prompts=[[5, 6, 7], [8, 9]], sampling_params=params(60))
    launch, abort, threads, inside = llm.runner.launch, llm.abort, [], []

    def slow(plan):
        inside.append(plan)
        time.sleep(0.01)
        pending = launch(plan)
        inside.pop()
        return pending

    def noted(request_id):
        threads.append((threading.current_thread(), list(inside)))
        return abort(request_id)

    monkeypatch.setattr(llm.runner, "launch", slow)
    monkeypatch.setattr(llm, "abort", noted)
    second = max(states(explorer))

    def other_thread():
        time.sleep(0.1)  # the run is on
        explorer.selected = second  # asks the engine for candidates
        press(explorer, "abort", id=second)

    async def main():
        press(explorer, "run", until=None)
        asker = threading.Thread(target=other_thread)
        asker.start()
        while asker.is_alive():
            await asyncio.sleep(0)
        assert explorer.running
        assert note(explorer).startswith(f"Aborted sequence {second}")
        explorer.stop()
        await explorer.wait()

    asyncio.run(main())
    assert threads == [(threading.main_thread(), [])]
    assert states(explorer)[second] == "aborted"
    with pytest.raises(ValueError, match="no live request"):  # an error comes back to the thread that asked
        explorer.abort(second)


def run_in_loop(explorer, outside):
    """As `run`, in a loop that has no handler of its own for the signal, like that of a kernel."""
    loop = asyncio.new_event_loop()

    async def main():
        press(explorer, "run", until=None)
        await explorer.wait()
        assert signal.getsignal(signal.SIGINT) == outside

    loop.run_until_complete(main())
    loop.close()


def test_an_interrupt_or_error_of_a_single_step(llm, open_live, monkeypatch):
    def broken():
        raise MemoryError("no room")

    explorer = open_live(llm)
    fail_at(monkeypatch, llm, 1, broken)
    press(explorer, "step")
    assert note(explorer) == "MemoryError: no room"
    assert explorer.trace.steps == []
    fail_at(monkeypatch, llm, 1, lambda: signal.raise_signal(signal.SIGINT))
    press(explorer, "step")
    assert "Interrupted" in note(explorer)
    press(explorer, "step")
    assert frames_sent(explorer) == [(0, 1)]


def test_an_interrupt_while_a_chunk_is_packed_loses_nothing(llm, open_live, monkeypatch):
    explorer = open_live(llm)
    press(explorer, "step")

    def interrupted(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(live_feed.Packer, "chunk", interrupted)
        press(explorer, "step")
    press(explorer, "step")
    assert explorer.sent[-1]["type"] == "trace"
    assert explorer.sent[-1]["payload"] == pack(explorer.trace)


def test_a_recording_that_somebody_else_stopped_is_noticed(llm, open_live):
    explorer = open_live(llm)
    llm.stop_trace()
    press(explorer, "step")
    assert "Reset starts a new one" in note(explorer)
    press(explorer, "reset")
    press(explorer, "step")
    assert len(explorer.trace.steps) == 1


# ---- who listens ----------------------------------------------------------------------------------


def test_made_three_times_one_listens(llm, open_live):
    """B93."""
    made = [open_live(llm) for _ in range(3)]
    assert len(llm.scheduler.waiting) == 3, "the old ones' requests are gone"
    press(made[-1], "step")
    assert [len(explorer.trace.steps) for explorer in made] == [0, 0, 1]
    for old in made[:2]:
        assert not old.status["attached"]
        assert "newer" in note(old)
        press(old, "step")
        press(old, "reset")
        assert "closed" in note(old)
        old.close()
    assert [len(explorer.trace.steps) for explorer in made] == [0, 0, 1]
    press(made[-1], "step")
    assert len(made[-1].trace.steps) == 2


def test_taken_over_while_it_runs(llm, open_live):
    old = open_live(llm)

    async def main():
        press(old, "run", until=None)
        await asyncio.sleep(0)
        new = open_live(llm)
        await old.wait()
        assert not old.running
        assert new.trace.steps == []

    asyncio.run(main())
    assert "newer" in note(old)


def test_two_engines_do_not_disturb_each_other(llm, small, open_live):
    a, b = open_live(llm), open_live(small)
    press(a, "step")
    press(a, "step")
    press(b, "step")
    assert (len(a.trace.steps), len(b.trace.steps)) == (2, 1)


def test_close_stops_the_recording_and_leaves_others_requests(llm, open_live):
    explorer = open_live(llm)
    other = llm.add_request("Somebody else's", params(2))
    press(explorer, "step")
    explorer.close()
    explorer.close()
    assert list(llm.scheduler.sequences) == [other]
    llm.start_trace()
    llm.stop_trace()
    llm.abort(other)
    with pytest.raises(RuntimeError, match="closed"):
        explorer.step()


def test_refused_at_the_start_nothing_stays(llm, open_live):
    llm.start_trace()
    with pytest.raises(RuntimeError, match="already being recorded"):
        LiveExplorer(llm, PROMPTS)
    llm.stop_trace()
    with pytest.raises(ValueError, match="empty"):
        LiveExplorer(llm, ["fine", ""])
    with pytest.raises(ValueError, match="2 sampling_params for 1 prompts"):
        LiveExplorer(llm, "one", [SamplingParams()] * 2)
    with pytest.raises(ValueError, match="theme"):
        LiveExplorer(llm, "one", theme="blue")
    assert llm.is_finished()
    open_live(llm)


def test_steps_of_other_code_show_too(llm, open_live):
    explorer = open_live(llm, "The")
    llm.step()
    llm.generate(["A river"], params(3), use_tqdm=False)
    explorer._feed._update()
    assert frames_sent(explorer)[-1][1] == len(explorer.trace.steps) > 3
    assert len(states(explorer)) == 2


# ---- what the page gets ------------------------------------------------------------------------------


def test_candidates_are_those_of_the_last_step_or_say_why_not(llm, open_live):
    explorer = open_live(llm)
    assert "Select" in explorer.status["candidates"]["note"]
    first, _, last = explorer.trace.requests
    explorer.selected = first
    assert "No step" in explorer.status["candidates"]["note"]
    press(explorer, "step")
    told = explorer.status["candidates"]
    assert [{k: row[k] for k in ("token_id", "text", "probability")} for row in told["rows"]] == llm.top_candidates(
        first, 8
    )
    assert [row["sampled"] for row in told["rows"]] == [True] + [False] * 7
    press(explorer, "abort", id=last)
    explorer.selected = last
    assert explorer.status["selected"]["status"] == "aborted"
    press(explorer, "step")
    assert explorer.status["candidates"]["rows"] == []
    assert "It was aborted." in explorer.status["candidates"]["note"]


def test_candidates_of_a_middle_chunk_say_that_its_sample_was_dropped(make_llm, open_live):
    llm = make_llm(kvcache_block_size=4, max_num_batched_tokens=4, num_kvcache_blocks=32)
    explorer = open_live(llm, PROMPTS[0])
    explorer.selected = 0
    press(explorer, "step")
    told = candidates_of(llm, explorer._sequences, 0)
    assert "nothing was sampled" in told["note"]
    assert not any(row["sampled"] for row in told["rows"])


def test_texts_grow_with_every_step(llm, open_live):
    explorer = open_live(llm, PROMPTS[0], params(6))
    (seq_id,) = explorer.trace.requests
    explorer.selected = seq_id
    texts = []
    for _ in range(5):
        press(explorer, "step")
        texts.append(explorer.status["selected"]["text"])
    assert all(b.startswith(a) and len(b) > len(a) for a, b in pairwise(texts))


def test_a_page_that_opens_later_gets_the_whole_trace(llm, open_live):
    explorer = open_live(llm)
    press(explorer, "step")
    press(explorer, "step")
    assert explorer.get_state("payload")["payload"] == pack(explorer.trace)
    press(explorer, "step")
    assert frames_sent(explorer) == [(0, 1), (1, 2), (2, 3)]


def test_what_stands_beside_the_widget_needs_no_kernel(llm, open_live):
    evil = "<img src=x onerror=alert(1)>"
    explorer = open_live(llm, [evil])
    data, _ = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "needs" in data["text/html"]
    assert evil not in data["text/html"]
    assert "&lt;img" in data["text/html"]
    press(explorer, "step")
    data, _ = explorer._repr_mimebundle_()
    assert "data-ni-poster" in data["text/html"]
    assert explorer.trace.explain(0) in data["text/plain"]


def test_repr_says_where_it_stands(llm, open_live):
    explorer = open_live(llm)
    assert repr(explorer) == "<LiveExplorer over <Trace: 0 steps, 3 requests, 3 events>, paused>"
    assert isinstance(explorer, LiveExplorer)


def test_a_program_that_leaves_an_explorer_open_ends_in_silence():
    """The interpreter takes it down when nothing can be imported any more, the tokenizer among it."""
    code = "from nanoinfer import LLM\nlive = LLM('tiny').explore([[1, 2, 3]])\n"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_without_anywidget_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['anywidget'] = None\n"
        "from nanoinfer import LLM\n"
        "try:\n    LLM('tiny').explore()\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("llm.explore() needs anywidget")
    assert 'pip install "nanoinfer[notebooks]"' in done.stdout
