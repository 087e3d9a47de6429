"""The recorder: one method for each mutation, called where the mutation happens.

`Recorder` does nothing and costs a call; `TraceRecorder` keeps the events. Arguments are plain
positional scalars, so that with recording off no object is built. The recorder does not decide
what is worth keeping, and it never looks at the scheduler.
"""

from __future__ import annotations

from nanoinfer.trace.events import Event


class Recorder:
    """Records nothing: the default of the scheduler and of the block manager."""

    def arrive(self, seq_id: int, num_prompt_tokens: int) -> None: ...

    def admit(self, seq_id: int, num_cached_tokens: int, miss_hash: int | None) -> None: ...

    def run(self, seq_id: int) -> None: ...

    def preempt(self, seq_id: int, on_behalf_of: int) -> None: ...

    def finish(self, seq_id: int, reason: str, late: str | None = None) -> None: ...

    def abort(self, seq_id: int) -> None: ...

    def allocate(self, seq_id: int, block_id: int) -> None: ...

    def reuse(self, seq_id: int, block_id: int) -> None: ...

    def share(self, seq_id: int, block_id: int) -> None: ...

    def release(self, seq_id: int, block_id: int) -> None: ...

    def register_hash(self, seq_id: int, block_id: int, block_hash: int) -> None: ...

    def evict_hash(self, block_id: int, block_hash: int) -> None: ...


NULL_RECORDER = Recorder()


class TraceRecorder(Recorder):
    """Appends each mutation to `events`, stamped with `step`, which its owner advances."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.step = 0

    def rewind(self, step: int) -> None:
        """Stamp all that happened after `step` began with `step`: the steps since then were undone."""
        for i in range(len(self.events) - 1, -1, -1):
            if self.events[i].step <= step:
                break
            self.events[i] = self.events[i]._replace(step=step)
        self.step = step

    def arrive(self, seq_id: int, num_prompt_tokens: int) -> None:
        self.events.append(Event(self.step, "arrive", seq_id, None, {"num_prompt_tokens": num_prompt_tokens}))

    def admit(self, seq_id: int, num_cached_tokens: int, miss_hash: int | None) -> None:
        data = {"num_cached_tokens": num_cached_tokens, "miss_hash": miss_hash}
        self.events.append(Event(self.step, "admit", seq_id, None, data))

    def run(self, seq_id: int) -> None:
        self.events.append(Event(self.step, "run", seq_id))

    def preempt(self, seq_id: int, on_behalf_of: int) -> None:
        self.events.append(Event(self.step, "preempt", seq_id, None, {"on_behalf_of": on_behalf_of}))

    def finish(self, seq_id: int, reason: str, late: str | None = None) -> None:
        """`late` says where a sequence no longer runs whose last token became known late.

        "waiting": it was preempted meanwhile. "ended": it has left for its length, and this is the true reason.
        """
        data = {"reason": str(reason)} if late is None else {"reason": str(reason), "late": late}
        self.events.append(Event(self.step, "finish", seq_id, None, data))

    def abort(self, seq_id: int) -> None:
        self.events.append(Event(self.step, "abort", seq_id))

    def allocate(self, seq_id: int, block_id: int) -> None:
        self.events.append(Event(self.step, "allocate", seq_id, block_id))

    def reuse(self, seq_id: int, block_id: int) -> None:
        self.events.append(Event(self.step, "reuse", seq_id, block_id))

    def share(self, seq_id: int, block_id: int) -> None:
        self.events.append(Event(self.step, "share", seq_id, block_id))

    def release(self, seq_id: int, block_id: int) -> None:
        self.events.append(Event(self.step, "release", seq_id, block_id))

    def register_hash(self, seq_id: int, block_id: int, block_hash: int) -> None:
        self.events.append(Event(self.step, "register_hash", seq_id, block_id, {"hash": block_hash}))

    def evict_hash(self, block_id: int, block_hash: int) -> None:
        self.events.append(Event(self.step, "evict_hash", None, block_id, {"hash": block_hash}))
