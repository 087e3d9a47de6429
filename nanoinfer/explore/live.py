"""The live explorer: the view of a replay over an engine that has not run yet.

    llm.explore(["Once upon a time", "The capital of France"])

It records the engine from the moment it is made. Its buttons step the engine, run it, stop it, and add
and abort requests; the same methods work from code. `widget.trace` is the growing trace.

One explorer listens to an engine at a time. A new one over the same engine takes over: the old one stops
recording, gives up the requests it had queued, and keeps showing what it has seen. What the prefix cache
holds stays, since it is the engine's; Reset empties it.

Running takes turns with everything else that the kernel does, a step each time: other cells and buttons
work meanwhile. Interrupting the kernel stops it after undoing the step in flight.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import anywidget
import traitlets

from nanoinfer.explore.live_engine import Engine, Params, Prompt, params_of, prompts_of
from nanoinfer.explore.live_feed import Feed
from nanoinfer.explore.live_run import Run, error_in_words, goal_of
from nanoinfer.explore.live_sequences import Decode, SequenceList, candidates_of
from nanoinfer.explore.live_turns import Turns, in_turn
from nanoinfer.explore.page import live_module
from nanoinfer.explore.shell import THEMES, live_forms
from nanoinfer.sampling_params import SamplingParams
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace

STOP_RECORDING = "nobody records this engine for the explorer any more: its trace was stopped. Reset starts a new one."
SILENT = {"note": "", "failed": False}  # what the view tells of the last action, and whether it is an error

_explorers: weakref.WeakKeyDictionary[Engine, weakref.ref[LiveExplorer]] = weakref.WeakKeyDictionary()


class LiveExplorer(anywidget.AnyWidget):
    """A view of a growing trace with the controls of the engine that makes it.

    Args:
        llm: an idle or busy engine that records no trace.
        prompts: queued at once, and again by `reset`.
        sampling_params: one for all prompts, or one for each.
        theme: "auto" (as the notebook), "light" or "dark".
        decode: turns token ids into text; without it a text shows as token ids until it is finished.

    Attributes:
        trace: what was recorded so far.

    Raises:
        RuntimeError: the engine is recording a trace already, or is closed.
        ValueError: a prompt or its parameters are refused, or no such theme. Nothing stays queued then.
    """

    payload = traitlets.Dict().tag(sync=True)  # of the whole trace, made when a page asks for it
    status = traitlets.Dict().tag(sync=True)
    step_shown = traitlets.Int(0).tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)

    def __init__(
        self,
        llm: Engine,
        prompts: Prompt | Sequence[Prompt] | None = None,
        sampling_params: Params = None,
        theme: str = "auto",
        decode: Decode | None = None,
    ) -> None:
        if theme not in THEMES:
            raise ValueError(f"theme must be one of {', '.join(map(repr, THEMES))}, got {theme!r}")
        self._initial = list(zip(prompts_of(prompts), params_of(prompts_of(prompts), sampling_params), strict=True))
        _take_over(llm)
        self._llm: Engine | None = None
        self._decode = decode
        self._turns = Turns()
        self._run = Run(self._turns, self._advance, self._run_ended)
        self._note = SILENT
        self._accepted: dict[str, Any] = {"count": 0, "prompt": ""}  # how many the text box has added, and the last one
        self._begin(llm)
        self._llm = llm
        try:
            super().__init__(_esm=live_module(), theme=theme)
        except BaseException:
            self._detach("")
            raise
        self.on_msg(self._receive)
        self.observe(self._on_selected, "selected")
        _explorers[llm] = weakref.ref(self)
        self._send_status()

    # ---- the recording --------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """What was recorded so far; it goes on growing."""
        return self._sequences.trace

    @property
    def running(self) -> bool:
        """Whether it steps by itself."""
        return self._run.going

    def _begin(self, llm: Engine) -> None:
        """Record from here on, and queue the initial prompts."""
        trace = llm.start_trace(lambda trace, i: self._feed.stepped(trace, i))
        self._feed = Feed(trace, lambda message: self.send(message), self._send_status)
        self._sequences = SequenceList(trace, self._decode)
        self._own: set[int] = set()  # ids of the requests that came through this widget
        try:
            for prompt, params in self._initial:
                self._own.add(llm.add_request(prompt, params))
        except BaseException:
            _abort(llm, self._own)
            llm.stop_trace()
            raise

    def _engine(self) -> Engine:
        if self._llm is None:
            raise RuntimeError("this explorer is closed; run the cell again for a new one")
        return self._llm

    @in_turn
    def reset(self) -> None:
        """Drop all requests, empty the prefix cache and record anew, with the initial prompts queued again."""
        llm = self._engine()
        self.stop()
        with suppress(RuntimeError):  # somebody stopped it by hand
            llm.stop_trace()
        _abort(llm, llm.start_trace().requests)  # a new trace lists everybody who is live
        llm.stop_trace()
        llm.step()  # computes nothing: it hands out results that nobody has asked for
        llm.reset_prefix_cache()
        self._begin(llm)
        self.selected = -1
        self._feed.send_all()
        self._send_status(note="A new trace; the prefix cache is empty.")

    def close(self) -> None:
        """Stop recording and take the view away. A second call does nothing."""
        if sys.is_finalizing():  # called by the last reference: nobody is left to tell, and nothing can be imported
            return
        if getattr(self, "_llm", None) is not None:
            self._turns.call(lambda: self._detach("Closed."))
        super().close()

    def _detach(self, note: str) -> None:
        """Let go of the engine and of the requests that came through this widget."""
        llm, self._llm = self._llm, None
        if llm is None:
            return
        self._run.stop()
        _explorers.pop(llm, None)
        with suppress(RuntimeError):
            llm.stop_trace()
        self._sequences.update()
        with suppress(RuntimeError):  # the engine may be closed
            _abort(llm, self._own & set(self._sequences.alive()))
        self._feed.flush()
        self._send_status(note=note)

    # ---- steps ----------------------------------------------------------------------------

    @in_turn
    def step(self) -> None:
        """Run one step of the engine. Raises whatever the engine raises; the step is undone then."""
        if self.running:
            raise RuntimeError("it is running; stop it first")
        self._note = SILENT
        try:
            steps = self._advance()
        finally:
            self._feed.flush()
            self._send_status()
        if steps is None:
            self._send_status(note="Nothing to do: every request has finished. Add one, or reset.")

    def _advance(self) -> list[Step] | None:
        """One step, and what was recorded meanwhile; None if there was nothing to do."""
        llm, before = self._engine(), len(self.trace.steps)
        if llm.is_finished():
            return None
        for _ in range(2):  # an overlapped engine records a step when it has launched the next one
            llm.step()
            if len(self.trace.steps) > before or llm.is_finished():
                return self.trace.steps[before:]
        raise RuntimeError(STOP_RECORDING)

    @in_turn
    def run(self, until: str | int | None = None) -> None:
        """Step until nothing is left to do, in turns with the kernel's other work.

        Args:
            until: "finish" stops after the step in which a request finishes, "preemption" after one that
                preempts somebody, a number after that step of the trace.

        Raises:
            RuntimeError: it is running already, or there is no event loop to run in (outside a notebook).
            ValueError: no such goal, or that step has already run.
        """
        self._engine()
        if self.running:
            raise RuntimeError("it is running already")
        self._run.start(goal_of(until, self.trace))
        self._note = SILENT
        self._send_status()

    @in_turn
    def stop(self) -> None:
        """Stop running after the step in flight. It does nothing if nothing runs."""
        if self.running:
            self._run.stop()
            done = len(self.trace.steps)
            self._send_status(note=f"Stopped after step {done - 1}." if done else "Stopped before the first step.")

    async def wait(self) -> None:
        """Until the run has ended: `await widget.wait()`."""
        await self._run.wait()

    def _run_ended(self, note: str | None, failed: bool) -> None:
        self._feed.flush()
        self._send_status(note, failed)

    # ---- requests -------------------------------------------------------------------------

    @in_turn
    def add(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> int:
        """Queue a request and return its id. Raises ValueError if it is refused."""
        seq_id = self._engine().add_request(prompt, sampling_params)
        self._own.add(seq_id)
        self._send_status(note=f"Added sequence {seq_id}.")
        return seq_id

    @in_turn
    def abort(self, seq_id: int) -> dict[str, Any]:
        """Drop a live request and return what it had so far. Raises ValueError if it is not live."""
        output = self._engine().abort(seq_id)
        self._send_status(note=f"Aborted sequence {seq_id}; its blocks are free.")
        return output

    # ---- messages -------------------------------------------------------------------------

    @in_turn
    def _receive(self, _widget: object, message: Any, _buffers: object) -> None:
        """A button was pressed. Whatever goes wrong is told in the view."""
        actions: dict[str, Callable[[], object]] = {
            "step": self.step,
            "run": lambda: self.run(message.get("until")),
            "stop": self.stop,
            "add": lambda: self._add_typed(message),
            "abort": lambda: self.abort(message.get("id")),
            "reset": self.reset,
        }
        action = actions.get(str(message.get("type"))) if isinstance(message, dict) else None
        if action is None:
            return
        try:
            action()
        except (Exception, KeyboardInterrupt) as error:
            self._send_status(note=error_in_words(error), failed=True)

    def _add_typed(self, message: dict[str, Any]) -> None:
        prompt = message.get("prompt", "")
        params = SamplingParams(max_tokens=message.get("max_tokens"), temperature=message.get("temperature"))  # type: ignore[arg-type]  # it checks them
        self.add(prompt, params)
        self._accepted = {"count": self._accepted["count"] + 1, "prompt": prompt}
        self._send_status()

    @in_turn
    def _on_selected(self, _change: object) -> None:
        self._send_status()

    def _send_status(self, note: str | None = None, failed: bool = False) -> None:
        """Tell the view where everything stands."""
        if note is not None:
            self._note = {"note": note, "failed": failed}
        self._sequences.update()
        llm = self._llm
        self.status = {
            "attached": llm is not None,
            "running": self.running,
            "idle": not self._sequences.alive(),
            **self._note,
            "newest": len(self.trace.steps) - 1,
            "sequences": self._sequences.rows(),
            "hidden": max(0, len(self._sequences.told) - len(self._sequences.rows())),
            "selected": self._sequences.selected(self.selected),
            "candidates": candidates_of(llm, self._sequences, self.selected) if llm else {"rows": [], "note": ""},
            "accepted": self._accepted,
        }

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """As ipywidgets does, with the whole trace for a page that opens later."""
        state: dict[str, Any] = super().get_state(key=key, drop_defaults=drop_defaults)
        if "payload" in state:
            if self.comm is not None:
                self._feed.flush()
            state["payload"] = self._feed.payload()
        return state

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        queued = [f"sequence {seq_id}: {self._sequences.prompt(seq_id)[:200]}" for seq_id in self._sequences.told]
        return {**data, **live_forms(self.trace, queued, self.theme)}, metadata

    def __repr__(self) -> str:
        state = "closed" if self._llm is None else "running" if self.running else "paused"
        return f"<LiveExplorer over {self.trace!r}, {state}>"


def _take_over(llm: Engine) -> None:
    """Detach the explorer that listens to this engine, if there is one."""
    reference = _explorers.get(llm)
    if reference and (old := reference()):
        old._detach("A newer explorer listens to this engine; this one shows what it has seen.")


def _abort(llm: Engine, seq_ids: Iterable[int]) -> None:
    """Drop those of `seq_ids` that are live."""
    for seq_id in sorted(seq_ids):
        with suppress(ValueError):  # it has just finished
            llm.abort(seq_id)
