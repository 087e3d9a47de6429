"""Assignment 7, hidden tests: other runs of every kind, more of them, and corners that three runs seldom show."""

from tempfile import TemporaryDirectory

import pytest

from nanoinfer import SamplingParams, Trace, simulate
from nanoinfer.course.kits.a7_faults import Run, expect_diagnosis, faultless_run, faulty_run
from nanoinfer.course.kits.requests import limits, prompt, tokens

RUNS = 12
ADMISSION = "Check the whole batch and the order in which it was admitted, step by step."
VICTIM = "Several may be preempted in one step: take each out of running before you look at the next."
TOKEN = "Decode rows lose tokens too, and the last chunk of a victim that comes back completes it."
POOL = "A victim and a finished sequence give back all; a shared block is released by each of its holders."
HASHES = "What is registered changes with every register_hash and evict_hash; tokens grow while a sequence decodes."
NOTHING = "Nothing is wrong here: a victim, a middle chunk, a shared block or a full pool is no fault."
NUMBERS = "Give the index of the step in trace.steps, from 0, and the id of the sequence, not its place in the step."


@pytest.mark.points(7, part="admission", hint=ADMISSION, visibility="hidden")
@pytest.mark.parametrize("kind", ["over_budget", "second_cut", "skipped_head"])
def test_more_admissions(impl, kind):
    """Twelve runs of each kind."""
    for seed in range(RUNS):
        expect_diagnosis(impl.diagnose, faulty_run(kind, seed))


@pytest.mark.points(6, part="queues", hint=VICTIM, visibility="hidden")
def test_more_victims(impl):
    """Twelve runs with a victim that is not the last of running."""
    for seed in range(RUNS):
        expect_diagnosis(impl.diagnose, faulty_run("wrong_victim", seed))


@pytest.mark.points(5, part="queues", hint=TOKEN, visibility="hidden")
def test_more_lost_tokens(impl):
    """Twelve runs with a lost token, of prefill and decode rows."""
    for seed in range(RUNS):
        expect_diagnosis(impl.diagnose, faulty_run("lost_token", seed))


@pytest.mark.points(6, part="blocks", hint=POOL, visibility="hidden")
@pytest.mark.parametrize("kind", ["early_block", "leaked_block"])
def test_more_blocks(impl, kind):
    """Twelve runs of each kind."""
    for seed in range(RUNS):
        expect_diagnosis(impl.diagnose, faulty_run(kind, seed))


@pytest.mark.points(8, part="hashes", hint=HASHES, visibility="hidden")
@pytest.mark.parametrize("kind", ["stale_hash", "early_hash", "wrong_hit"])
def test_more_hashes(impl, kind):
    """Twelve runs of each kind."""
    for seed in range(RUNS):
        expect_diagnosis(impl.diagnose, faulty_run(kind, seed))


@pytest.mark.points(5, part="all", hint=NOTHING, visibility="hidden")
def test_more_faultless_runs(impl):
    """Thirty random runs, one that ends by eos and by a stop id, one without a prefix cache, one with blocks of one."""
    for seed in (*range(30), 51, 59, 63):  # the last three have steps with two victims
        expect_diagnosis(impl.diagnose, faultless_run(seed))
    prompts = [prompt(6), prompt(6), prompt(9, 1)]
    ends = [SamplingParams(max_tokens=6), SamplingParams(max_tokens=6, stop_token_ids=[7]), tokens(6)]
    sized = limits(4, 6, budget=7)
    for more in ({}, {"enable_prefix_caching": False}, {"kvcache_block_size": 1, "num_kvcache_blocks": 20}):
        trace = simulate(prompts, ends, token_fn=lambda ids: len(ids) % 9, eos=8, **(sized | more))
        expect_diagnosis(impl.diagnose, Run(trace, None))


@pytest.mark.points(3, part="all", hint=NUMBERS, visibility="hidden")
def test_a_trace_from_a_file(impl):
    """A run is written, read again and diagnosed: one with a fault, one without."""
    for run in (faulty_run("over_budget", 77), faultless_run(77)):
        with TemporaryDirectory() as folder:
            run.trace.save(f"{folder}/run.jsonl")
            trace = Trace.load(f"{folder}/run.jsonl")
        expect_diagnosis(impl.diagnose, Run(trace, run.finding))
