"""Scheduling without a model: sequences, blocks, policies and the step loop. Imports no torch."""

import nanoinfer.core.policies  # noqa: F401  whoever imports a part of the core finds every policy by its name
