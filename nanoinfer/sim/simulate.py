"""The simulator: the real scheduler and block manager, with a function in place of the model.

It answers questions about decisions, in microseconds per step and without torch. It says nothing
about text, and about time only what `cost_model` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nanoinfer.config import EngineConfig
from nanoinfer.core.admission import check_request, check_token_ids, one_per_prompt
from nanoinfer.core.block_manager import BlockManager
from nanoinfer.core.engine_core import EngineCore
from nanoinfer.core.overlap.loop import OverlappedCore
from nanoinfer.core.plan import StepPlan, StepResult
from nanoinfer.core.scheduler import Scheduler, policy_name
from nanoinfer.core.sequence import request_output
from nanoinfer.sampling_params import SamplingParams, as_int, as_ints, as_number
from nanoinfer.trace.trace import OnStep, Trace

TokenFn = Callable[[list[int]], int]
CostModel = Callable[[StepPlan], float]


class _SimulatedRunner:
    """Draws tokens from `token_fn` and moves its own clock: a device that runs plans one after the other.

    The scheduler takes no time, with one exception: without a cost model an overlapped clock counts launches, so that
    step n is scheduled at n and its tokens are known at n + 2, when step n + 1 has been launched.
    """

    def __init__(self, token_fn: TokenFn | None, cost_model: CostModel | None, overlap: bool) -> None:
        self.token_fn, self.cost_model = token_fn or default_token, cost_model
        self.launch_cost = 1 if overlap and not cost_model else 0
        self.now = 0.0
        self.free_at = 0.0  # when the device has run all that was launched

    def clock(self) -> float:
        return self.now

    def run(self, plan: StepPlan) -> StepResult:
        return self.launch(plan).result()

    def launch(self, plan: StepPlan) -> _SimulatedPlan:
        cost = as_number("cost_model(plan)", self.cost_model(plan)) if self.cost_model else 1
        if cost < 0:
            raise ValueError(f"cost_model(plan) must not be negative, got {cost}")
        self.now += self.launch_cost
        self.free_at = max(self.now, self.free_at) + cost
        return _SimulatedPlan(self, plan, self.free_at)

    def next_token(self, token_ids: list[int]) -> int:
        token_id = as_int("token_fn(token_ids)", self.token_fn(token_ids))
        if token_id < 0:
            raise ValueError(f"token_fn(token_ids) must not be negative, got {token_id}")
        return token_id


class _SimulatedPlan:
    """A launched plan: nothing is drawn before its result is asked for."""

    def __init__(self, runner: _SimulatedRunner, plan: StepPlan, ends_at: float) -> None:
        self.runner, self.ends_at = runner, ends_at
        ends = [row.num_computed + row.num_scheduled for row in plan.rows]
        # What a row draws from; None for a middle chunk. Later tokens may have joined the sequence by then.
        self.contexts = [
            (row.seq, end if end == len(row.seq) else None) for row, end in zip(plan.rows, ends, strict=True)
        ]

    def result(self) -> StepResult:
        self.runner.now = max(self.runner.now, self.ends_at)
        return StepResult(
            [0 if end is None else self.runner.next_token(seq.token_ids[:end]) for seq, end in self.contexts]
        )


def default_token(token_ids: list[int]) -> int:
    """A made-up next token: fixed by the length and the last token, below 50,000."""
    return (token_ids[-1] * 31 + len(token_ids) * 7919 + 1) % 50_000


def simulate(
    prompts: Sequence[Sequence[int]],
    sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    token_fn: TokenFn | None = None,
    eos: int | Sequence[int] | None = None,
    arrivals: Sequence[float] | None = None,
    cost_model: CostModel | None = None,
    *,
    scheduler_cls: type[Scheduler] | None = None,
    block_manager_cls: type[BlockManager] = BlockManager,
    on_step: OnStep | None = None,
    **config: Any,
) -> Trace:
    """Run requests through the scheduler without a model.

    Args:
        prompts: token ids of each request.
        sampling_params: one for all, or one for each prompt. Only the stopping rules matter here.
        token_fn: picks the next token from the whole context; deterministic by default.
        eos: id or ids that end a sequence.
        arrivals: for each request, the clock value before whose `schedule()` it is added (default 0).
            The clock counts steps, or seconds with a cost model. An idle engine jumps to the next arrival.
        cost_model: seconds a plan takes on the device; everything else takes none.
        scheduler_cls: a class with the methods of Scheduler, in place of the one that `policy` names.
        block_manager_cls: a class with the methods of BlockManager, in place of it.
        on_step: called as on_step(trace, i) after each step.
        **config: fields of EngineConfig. `num_kvcache_blocks` defaults to room for every request at once.

    Raises:
        ValueError: a request, an arrival or a setting is refused, and nothing was run; or `token_fn` gave no token id.
        TypeError: an unknown setting.
    """
    params = one_per_prompt(prompts, sampling_params)
    requests = [_checked_ids(prompt, i) for i, prompt in enumerate(prompts)]
    times = _checked_arrivals(arrivals, len(requests))
    settings = EngineConfig(**{"policy": policy_name(scheduler_cls)} | config, eos=_as_tuple(eos))
    settings = _sized(replace(settings, overlap=bool(settings.overlap)), requests, params)
    for i, (prompt, request_params) in enumerate(zip(requests, params, strict=True)):
        check_request(prompt, request_params, settings, f"prompt {i}")

    runner = _SimulatedRunner(token_fn, cost_model, bool(settings.overlap))
    unit = "seconds" if cost_model else "steps"
    loop = OverlappedCore if settings.overlap else EngineCore
    core = loop(settings, runner, runner.clock, unit, "simulator", scheduler_cls, block_manager_cls)
    trace = core.start_trace(on_step=on_step)
    outputs: dict[int, dict[str, Any]] = {}
    ids: dict[int, int] = {}
    not_arrived = sorted(range(len(requests)), key=times.__getitem__)  # stable: ties keep the input order
    while not_arrived or not core.is_finished():
        if core.is_finished():
            runner.now = max(runner.now, times[not_arrived[0]])
        while not_arrived and times[not_arrived[0]] <= runner.now:
            i = not_arrived.pop(0)
            ids[i] = core.add(requests[i], params[i], arrival=times[i])
        outputs |= {seq.seq_id: request_output(seq) for seq in core.step()}
    trace = core.stop_trace()
    trace.outputs.extend(outputs[ids[i]] for i in range(len(requests)))
    return trace


def _checked_ids(prompt: Any, i: int) -> list[int]:
    if isinstance(prompt, (str, int)):
        raise ValueError(f"prompt {i} must be a list of token ids (the simulator has no tokenizer), got {prompt!r}")
    return check_token_ids(prompt, None, f"prompt {i} token ids")


def _as_tuple(eos: int | Sequence[int] | None) -> tuple[int, ...]:
    return () if eos is None else as_ints("eos", eos if isinstance(eos, Sequence) else [eos])


def _checked_arrivals(arrivals: Sequence[float] | None, count: int) -> list[float]:
    if arrivals is None:
        return [0] * count
    if len(arrivals) != count:
        raise ValueError(f"arrivals has {len(arrivals)} entries for {count} prompts")
    for time in arrivals:
        if as_number("arrivals", time) < 0:
            raise ValueError(f"arrivals must not be negative, got {time}")
    return list(arrivals)


def _sized(config: EngineConfig, prompts: list[list[int]], params: list[SamplingParams]) -> EngineConfig:
    """`config` with a pool that holds every request at its longest, if it asked for that."""
    if config.num_kvcache_blocks != -1:
        return config
    longest = [min(len(ids) + p.max_tokens, config.max_model_len) for ids, p in zip(prompts, params, strict=True)]
    blocks = sum(-(-tokens // config.kvcache_block_size) for tokens in longest)
    return replace(config, num_kvcache_blocks=max(blocks, 1))
