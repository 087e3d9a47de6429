"""The trace: everything one recorded run decided and changed, and the questions one can ask it.

The data is a header, the requests, the events and the steps. Every view of it (state, words,
numbers, tables, files, pictures) lives in a file of its own beside this one and is reached
through a method here; nothing is computed until it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanoinfer.config import EngineConfig
from nanoinfer.extras import require
from nanoinfer.trace.events import SCHEMA_VERSION, Event
from nanoinfer.trace.state import Replay, SchedulerState
from nanoinfer.trace.steps import Step

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from nanoinfer.explore.shell import Exploration

OnStep = Callable[["Trace", int], None]


@dataclass
class Header:
    """What was run, on what, and the state when recording began.

    Attributes:
        config: the resolved engine settings.
        clock_unit: "steps" or "seconds".
        scheduler_cls, block_manager_cls: qualified names of the classes that decided.
        versions: of Python, nanoinfer and, where used, torch and transformers.
        device: "simulator", "cpu" or a GPU's name.
        initial: queues, tables, hashes and free list when recording began; a warm engine folds too.
    """

    config: dict[str, Any]
    clock_unit: str
    scheduler_cls: str
    block_manager_cls: str
    versions: dict[str, str]
    device: str
    initial: SchedulerState
    schema_version: int = SCHEMA_VERSION

    @property
    def seed(self) -> int:
        return self.config["seed"]  # type: ignore[no-any-return]  # EngineConfig checked it

    @property
    def model(self) -> str:
        return self.config["model"]  # type: ignore[no-any-return]  # EngineConfig checked it


@dataclass
class Request:
    """What was asked for. `arrival` is the clock value of the submission, None if before recording began."""

    seq_id: int
    arrival: float | None
    prompt_token_ids: list[int]
    sampling_params: dict[str, Any]
    prompt: str | None = None


@dataclass(eq=False)
class Trace:
    """A recorded run."""

    header: Header
    requests: dict[int, Request] = field(default_factory=dict)  # by sequence id
    events: list[Event] = field(default_factory=list)  # every mutation in order
    steps: list[Step] = field(default_factory=list)  # one per `schedule()` call
    outputs: list[dict[str, Any]] = field(default_factory=list)  # in input order; hand-driven, as requests finished

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        names = ("header", "requests", "events", "steps", "outputs")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __repr__(self) -> str:
        return f"<Trace: {len(self.steps)} steps, {len(self.requests)} requests, {len(self.events)} events>"

    @cached_property
    def config(self) -> EngineConfig:
        """The resolved settings of the engine."""
        return EngineConfig(**self.header.config)

    @cached_property
    def replay(self) -> Replay:
        """The fold behind `state`, shared by all views so that going forward costs one pass."""
        return Replay(self.header.initial, self.events)

    def step_index(self, i: int) -> int:
        """`i` as a position in `steps`; negative counts from the end, as in all views. Raises IndexError."""
        if not -len(self.steps) <= i < len(self.steps):
            raise IndexError(f"step {i} is outside this trace of {len(self.steps)} steps")
        return i % len(self.steps)

    def state(self, i: int) -> SchedulerState:
        """The scheduler after step `i`, rebuilt from `header.initial` and the events alone.

        Raises:
            IndexError: no such step.
            ValueError: the events contradict each other.
        """
        return self.replay.at(self.step_index(i)).freeze()

    def explain(self, i: int) -> str:
        """Step `i` in plain English sentences with the numbers, one a line."""
        from nanoinfer.trace.explain import explain

        return explain(self, self.step_index(i))

    def metrics(self) -> dict[str, Any]:
        """Latency, cache and preemption figures; `docs/metrics.md` defines each one."""
        from nanoinfer.trace.metrics import metrics

        return metrics(self)

    def to_pandas(self) -> dict[str, pd.DataFrame]:
        """DataFrames "steps", "rows", "events" and "requests"."""
        require("trace.to_pandas()", "pandas")
        from nanoinfer.trace.tables import to_pandas

        return to_pandas(self)

    def save(self, path: str | Path) -> None:
        """Write JSON Lines to `path` (.jsonl, or .jsonl.gz to compress)."""
        from nanoinfer.trace.store import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: no such file.
            ValueError: not a trace, truncated, damaged, or written by a newer version.
        """
        from nanoinfer.trace.store import load

        return load(Path(path))

    def to_perfetto(self, path: str | Path) -> None:
        """Write Chrome trace events that open in Perfetto (ui.perfetto.dev)."""
        from nanoinfer.trace.perfetto import to_perfetto

        to_perfetto(self, Path(path))

    def explore(
        self,
        step: int = 0,
        select: int | None = None,
        theme: str = "auto",
        tour: Sequence[tuple[int, int | None, str]] | None = None,
        height: int | None = None,
    ) -> Exploration:
        """The interactive replay, as rich output that needs no kernel once it is shown.

        Args:
            step: where it opens; negative counts from the end.
            select: a sequence to follow.
            theme: "auto" follows the page around it; or "light", "dark".
            tour: bookmarks (step, sequence to select or None, caption) with Back and Next.
            height: of the frame in pixels; by default as tall as its content.

        Raises:
            IndexError: no such step.
            ValueError: no such sequence or theme, or a bookmark that the trace does not have.
        """
        from nanoinfer.explore.shell import Exploration

        return Exploration(self, step, select, theme, tour, height)

    def to_html(
        self,
        path: str | Path,
        step: int = 0,
        select: int | None = None,
        theme: str = "auto",
        tour: Sequence[tuple[int, int | None, str]] | None = None,
    ) -> None:
        """Write the interactive replay to `path` as one file that opens from disk, without a network."""
        from nanoinfer.explore.shell import Exploration

        Exploration(self, step, select, theme, tour).write(path)

    def animate(
        self,
        path: str | Path,
        theme: str = "light",
        fps: float = 8,
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        """Write steps `start` to `end - 1` as an animation to `path`, a .gif, or an .mp4 where ffmpeg is present."""
        require("trace.animate()", "matplotlib")
        from nanoinfer.viz.animation import animate

        animate(self, path, theme, fps, start, end)

    # Pictures: a notebook shows the returned figure; elsewhere, figure.savefig("picture.png"). Extra `plots`.

    def timeline(self, theme: str = "light", start: int | None = None, end: int | None = None) -> Figure:
        """Steps `start` to `end - 1` against sequences: who waited, prefilled, decoded, was preempted, finished."""
        require("trace.timeline()", "matplotlib")
        from nanoinfer.viz.timeline import timeline

        return timeline(self, theme, start, end)

    def block_map(self, i: int, theme: str = "light", select: int | None = None, by_owner: bool = False) -> Figure:
        """The physical blocks after step `i`.

        Args:
            i: the step; negative counts from the end.
            theme: "light" or "dark".
            select: a sequence to highlight; its block table is drawn too.
            by_owner: colour blocks by the sequence that holds them.
        """
        require("trace.block_map()", "matplotlib")
        from nanoinfer.viz.block_map import block_map

        return block_map(self, self.step_index(i), theme=theme, select=select, by_owner=by_owner)

    def queues(self, i: int, theme: str = "light") -> Figure:
        """`waiting` and `running` before and after step `i`, and why admission stopped."""
        require("trace.queues()", "matplotlib")
        from nanoinfer.viz.queues import queues

        return queues(self, self.step_index(i), theme)

    def budget(self, theme: str = "light") -> Figure:
        """Tokens per step against the budget, and KV blocks in use."""
        require("trace.budget()", "matplotlib")
        from nanoinfer.viz.budget import budget

        return budget(self, theme)
