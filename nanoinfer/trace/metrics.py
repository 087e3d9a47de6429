"""Latency, cache and preemption figures of a run. `docs/metrics.md` defines every symbol and figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import fsum
from typing import Any

from nanoinfer.trace.events import endings
from nanoinfer.trace.trace import Trace
from nanoinfer.trace.usage import usage


@dataclass
class RequestTimes:
    """What one request went through, in clock units."""

    seq_id: int
    arrival: float | None
    num_prompt_tokens: int
    first_scheduled: float | None = None
    token_times: list[float] = field(default_factory=list)
    finished: float | None = None
    finish_reason: str | None = None
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    num_looked_up_tokens: int = 0
    num_recomputed_tokens: int = 0
    num_once_computed: int = 0  # positions whose KV was computed (or found) at some time

    def since_arrival(self, time: float | None) -> float | None:
        return None if time is None or self.arrival is None else time - self.arrival

    @property
    def ttft(self) -> float | None:
        return self.since_arrival(self.token_times[0]) if self.token_times else None

    def to_dict(self) -> dict[str, Any]:
        """One row of the requests table."""
        return {
            "seq_id": self.seq_id,
            "arrival": self.arrival,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_output_tokens": len(self.token_times),
            "queue_time": self.since_arrival(self.first_scheduled),
            "ttft": self.ttft,
            "latency": self.since_arrival(self.finished),
            "finish_reason": self.finish_reason,
            "num_cached_tokens": self.num_cached_tokens,
            "num_preemptions": self.num_preemptions,
            "num_recomputed_tokens": self.num_recomputed_tokens,
        }


def request_times(trace: Trace) -> list[RequestTimes]:
    """One entry per request, in one pass over the trace."""
    requests = {r.seq_id: RequestTimes(r.seq_id, r.arrival, len(r.prompt_token_ids)) for r in trace.requests.values()}
    for step in trace.steps:
        end = step.clock + step.timing["duration"]
        for victim in step.preempted:
            requests[victim.victim].num_preemptions += 1
        c = step.columns
        rows = zip(c.seq_id, c.num_computed, c.num_cached, c.num_scheduled, c.token_id, c.chunk, strict=True)
        for seq_id, computed, cached, scheduled, token_id, chunk in rows:
            request = requests[seq_id]
            if request.first_scheduled is None:
                request.first_scheduled = step.clock
            if chunk and chunk[0] == 1:
                request.num_cached_tokens += cached
                request.num_looked_up_tokens += request.num_prompt_tokens + len(request.token_times)
            # Positions below the mark had their KV once and lost it to a preemption.
            request.num_recomputed_tokens += max(0, min(request.num_once_computed, computed + scheduled) - computed)
            request.num_once_computed = max(request.num_once_computed, computed + scheduled)
            if token_id is not None:
                request.token_times.append(end)
    _add_endings(trace, requests)
    return list(requests.values())


def _add_endings(trace: Trace, requests: dict[int, RequestTimes]) -> None:
    for ending in endings(trace.events):
        request, recorded = requests[ending.seq_id], ending.step < len(trace.steps)
        if not recorded and (ending.aborted or ending.by_length):
            continue  # its time is not known
        last_token = request.token_times[-1] if request.token_times else None
        request.finish_reason = ending.reason
        request.finished = trace.steps[ending.step].clock if ending.aborted else last_token


def metrics(trace: Trace) -> dict[str, Any]:
    """All figures of `docs/metrics.md`; times in `header.clock_unit`s."""
    requests = request_times(trace)
    held = usage(trace)
    num_blocks, size = trace.config.num_kvcache_blocks, trace.config.kvcache_block_size
    looked_up = sum(r.num_looked_up_tokens for r in requests)
    cached = sum(r.num_cached_tokens for r in requests)
    last = trace.steps[-1] if trace.steps else None
    duration = last.clock + last.timing["duration"] - trace.steps[0].clock if last else 0.0
    output_tokens = sum(len(r.token_times) for r in requests)
    return {
        "clock_unit": trace.header.clock_unit,
        "num_requests": len(requests),
        "num_steps": len(trace.steps),
        "duration": duration,
        "prompt_tokens": sum(r.num_prompt_tokens for r in requests),
        "output_tokens": output_tokens,
        "output_tokens_per_clock_unit": output_tokens / duration if duration else None,
        "queue_time": summary([r.since_arrival(r.first_scheduled) for r in requests]),
        "ttft": summary([r.ttft for r in requests]),
        "inter_token_latency": summary([b - a for r in requests for a, b in pairwise(r.token_times)]),
        "latency": summary([r.since_arrival(r.finished) for r in requests]),
        "kv_block_use": summary([u.used_blocks / num_blocks for u in held]),
        "kv_slot_use": summary([u.filled_slots / (num_blocks * size) for u in held]),
        "prefix_hit_rate": cached / looked_up if looked_up else 0.0,
        "num_preemptions": sum(r.num_preemptions for r in requests),
        "recomputed_tokens": sum(r.num_recomputed_tokens for r in requests),
        "wasted_rows": sum(len(step.columns.wasted) for step in trace.steps),
        "requests": [r.to_dict() for r in requests],
    }


def summary(values: Sequence[float | None]) -> dict[str, float] | None:
    """Mean, median, 90th and 99th percentile and maximum of the known values; None without any."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    percentiles = {f"p{share}": percentile(known, share) for share in (50, 90, 99)}
    return {"mean": fsum(known) / len(known), **percentiles, "max": float(known[-1])}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` percent of `ordered` (ascending, not empty) lie, between neighbours on a line."""
    place = share / 100 * (len(ordered) - 1)
    below = int(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return float(low + (place - below) * (high - low))
