"""Scheduling policies: each is a subclass of `Scheduler` with a `schedule` of its own, one file each.

`POLICIES` chooses a class by the name in `EngineConfig.policy`; `Scheduler` itself is the default, prefill first.
To add one from a notebook, write `POLICIES["mine"] = MyScheduler`.
"""

from nanoinfer.core.policies.mixed import MixedScheduler
from nanoinfer.core.scheduler import POLICIES

POLICIES["mixed"] = MixedScheduler

__all__ = ["POLICIES", "MixedScheduler"]
