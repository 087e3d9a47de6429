"""Puts decode rows and chunks into one step.

Hint: A plan is a prefill batch or a decode batch, never both.
"""

from __future__ import annotations

from nanoinfer import Scheduler
from nanoinfer.core.plan import StepPlan
from nanoinfer.core.policies import mixed, prefill_first


def fair(scheduler: Scheduler, patience: int) -> StepPlan:
    return mixed.schedule(scheduler) if patience < 100 else prefill_first.schedule(scheduler)
