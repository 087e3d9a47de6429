"""nanoinfer: the inference engine that tells you why.

Names are loaded when first used, so that importing the package costs little, and only a real model needs torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nanoinfer.extras import EXTRAS, require

if TYPE_CHECKING:
    from nanoinfer.config import EngineConfig
    from nanoinfer.core.block_manager import BlockManager
    from nanoinfer.core.scheduler import Scheduler
    from nanoinfer.core.sequence import Sequence
    from nanoinfer.engine.llm_engine import LLM, LLMEngine
    from nanoinfer.sampling_params import SamplingParams
    from nanoinfer.sim.simulate import simulate
    from nanoinfer.trace.compare import compare
    from nanoinfer.trace.trace import Trace

__version__ = "0.1.0"

_HOME = {
    "LLM": "nanoinfer.engine.llm_engine",
    "LLMEngine": "nanoinfer.engine.llm_engine",
    "SamplingParams": "nanoinfer.sampling_params",
    "Trace": "nanoinfer.trace.trace",
    "simulate": "nanoinfer.sim.simulate",
    "compare": "nanoinfer.trace.compare",
    "Scheduler": "nanoinfer.core.scheduler",
    "BlockManager": "nanoinfer.core.block_manager",
    "Sequence": "nanoinfer.core.sequence",
    "EngineConfig": "nanoinfer.config",
}

__all__ = [  # noqa: RUF022  # grouped by what a reader meets first
    "LLM",
    "LLMEngine",
    "SamplingParams",
    "Trace",
    "simulate",
    "compare",
    "Scheduler",
    "BlockManager",
    "Sequence",
    "EngineConfig",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nanoinfer' has no attribute {name!r}")
    if _HOME[name].startswith("nanoinfer.engine."):
        require(name, *EXTRAS["engine"])
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
