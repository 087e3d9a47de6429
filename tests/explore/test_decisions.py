"""What the explorer is told of each frame's decision: its headline and the frames worth a visit."""

from kit.helpers import limits, params, prompt
from kit.lazy_device import Driver

from nanoinfer import simulate
from nanoinfer.explore.decisions import put_decisions
from nanoinfer.explore.frames import Frames
from nanoinfer.reasons import Stop, StopReason


class Told(dict):
    """Takes the place of `Columns`: keeps each column as it was put."""

    def numbers(self, name, values):
        self[name] = list(values)

    json = dict.__setitem__


def decisions_of(trace, size=1):
    told, frames = Told(), Frames(len(trace.steps), size)
    put_decisions(told, trace, frames, 0, frames.count)
    return told


def headlines(told):
    """The line of each frame that says what ran."""
    pairs = zip(told["sentences"], told["headline"], strict=True)
    return [sentences.split("\n")[line] for sentences, line in pairs]


def test_every_step_has_a_headline_that_says_what_ran():
    """It stands behind arrivals, and no text of a policy is taken for it."""
    trace = simulate([prompt(4), prompt(4, 1)], params(4), arrivals=[0, 1], **limits(4, 16))
    trace.steps[2].stop = Stop("Step 9 (")
    told = decisions_of(trace)
    assert told["headline"] == [1, 1, *[0] * (len(trace.steps) - 2)]
    starts = [f"Step {i} ({step.phase}, " for i, step in enumerate(trace.steps)]
    assert [line[: len(start)] for line, start in zip(headlines(told), starts, strict=True)] == starts
    for seed in range(20):
        trace = Driver(seed).run().trace
        named = [line.split(" (")[0] for line in headlines(decisions_of(trace))]
        assert named == [f"Step {i}" for i in range(len(trace.steps))]


def test_only_reasons_that_refuse_are_marked_as_refusals():
    """Of those that the schedulers know, and not one that no record speaks of."""
    trace = simulate([prompt(4)], params(len(StopReason) + 1), **limits(4, 16))
    for step, reason in zip(trace.steps, [*StopReason, "NOT_DECLARED"], strict=True):
        step.stop = Stop(reason)
    refusals = {"MAX_SEQS", "TOKEN_BUDGET", "NO_BLOCKS", "CHUNK_NOT_ALLOWED"}
    marked = decisions_of(trace)["marks"]["refusal"]
    assert {trace.steps[frame].stop.reason for frame in marked} == refusals


def test_the_headline_of_several_steps_names_them():
    trace = simulate([prompt(4)], params(7), **limits(4, 16))
    told = decisions_of(trace, size=3)
    assert headlines(told) == [f"Steps {a} to {b} as one frame." for a, b in ((0, 2), (3, 5), (6, 6))]
    assert all("was the fullest" in text for text in told["sentences"])
