"""A trace cut into frames: what the slider moves over.

A frame is one step. A trace of more than MOST_FRAMES steps is shown in buckets of equal size
instead, each of which shows the state after its last step.
"""

from __future__ import annotations

from dataclasses import dataclass

from nanoinfer.trace.trace import Trace

MOST_FRAMES = 20_000


@dataclass(frozen=True)
class Frames:
    """`count` frames of `size` steps each; the last may be shorter."""

    steps: int
    size: int

    @property
    def count(self) -> int:
        return -(-self.steps // self.size)

    def first_step(self, frame: int) -> int:
        return frame * self.size

    def end_step(self, frame: int) -> int:
        """The first step that no longer belongs to `frame`."""
        return min((frame + 1) * self.size, self.steps)

    def of_step(self, step: int) -> int:
        return step // self.size


def frames_of(trace: Trace, most: int = MOST_FRAMES) -> Frames:
    """Frames of one step where there are at most `most` steps, else as few steps to the frame as will do."""
    return Frames(len(trace.steps), max(1, -(-len(trace.steps) // most)))
