"""A run of a student's class beside one of nanoinfer's own, and the first step in which the two differ."""

from __future__ import annotations

from typing import Any

from nanoinfer.core.block_manager import BlockManager
from nanoinfer.course.grading.adapter import run_student
from nanoinfer.course.grading.failures import explain_failure
from nanoinfer.sim.simulate import simulate
from nanoinfer.trace.steps import Step
from nanoinfer.trace.trace import Trace


def run_against_reference(
    classes: dict[str, Any], why: str, reference_manager: type[BlockManager] = BlockManager, **run: Any
) -> Trace:
    """Run the same requests through the student's classes and through nanoinfer's; the student's trace.

    `classes` and `run` are keywords of `simulate`; `why` is the rule that a difference breaks, in one sentence.

    Raises:
        AssertionError: a step differs; the message shows it.
    """
    trace = run_student(**run, **classes)
    expect_same_decisions(trace, simulate(**run, block_manager_cls=reference_manager), why)
    return trace


def expect_steps(trace: Trace, expected: list[str], why: str) -> None:
    """Raise AssertionError unless the first steps of `trace` read as `expected`, each as in "prefill 0:8+2 1:0+5".

    A share reads sequence:computed+scheduled.
    """
    for i, line in enumerate(expected):
        assert i < len(trace.steps), explain_failure(trace, -1, f"a step {i}, {line}, but the run ended", why)
        got = share_line(trace.steps[i])
        assert got == line, explain_failure(trace, i, f"{line}, got {got}", why)


def share_line(step: Step) -> str:
    """A step in one line, as in "prefill 0:8+2 1:0+5"."""
    return " ".join([step.phase, *(f"{row.seq_id}:{row.num_computed}+{row.num_scheduled}" for row in step.rows)])


def expect_same_decisions(trace: Trace, reference: Trace, why: str) -> None:
    """Raise AssertionError for the first step of `trace` that is not as in `reference`."""
    for mine, theirs in zip(trace.steps, reference.steps, strict=False):
        got, expected = decision(mine), decision(theirs)
        for name, value in expected.items():
            assert got[name] == value, explain_failure(trace, mine.index, f"{name} {value}, got {got[name]}", why)
    steps = len(reference.steps)
    assert len(trace.steps) == steps, explain_failure(trace, -1, f"{steps} steps, got {len(trace.steps)}", why)
    assert trace.outputs == reference.outputs, explain_failure(trace, -1, f"outputs {reference.outputs}", why)


def decision(step: Step) -> dict[str, Any]:
    """What a step decided and left behind, in the words of a trace; hash values are the student's own affair."""
    state = step.trace.state(step.index)
    return {
        "rows": [f"{r.seq_id}: {r.num_computed}+{r.num_scheduled} in {r.block_table}" for r in step.rows],
        "phase": step.phase,
        "cached tokens": [row.num_cached for row in step.rows],
        "sampled tokens": [row.token_id for row in step.rows],
        "preempted": [(p.victim, p.on_behalf_of, p.rule, p.blocks, p.tokens) for p in step.preempted],
        "stop": str(step.stop),
        "waiting": state.waiting,
        "running": state.running,
        "block tables": state.block_tables,
        "reference counts": state.ref_counts,
        "free list": state.free_blocks,
        "findable blocks": sorted(state.hash_index.values()),
    }
