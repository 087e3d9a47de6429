"""Scheduling policies: each is one function from a scheduler to the plan of its next step.

A policy reads the queues and the limits of the scheduler it is given and acts only through the
scheduler's moves (`schedule_prefill`, `schedule_decode`, `start_running`, `make_room`, `preempt`,
`no_blocks`) and the block manager's (`can_allocate`, `allocate`, `can_append`, `deallocate`). To add
one, write such a function and put it into POLICIES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nanoinfer.core.plan import StepPlan
from nanoinfer.core.policies import mixed, prefill_first

if TYPE_CHECKING:
    from nanoinfer.core.scheduler import Scheduler

Policy = Callable[["Scheduler"], StepPlan]

POLICIES: dict[str, Policy] = {"prefill_first": prefill_first.schedule, "mixed": mixed.schedule}


def get_policy(name: str) -> Policy:
    """The policy called `name`. Raises ValueError with the known names."""
    if name not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {name!r}")
    return POLICIES[name]
