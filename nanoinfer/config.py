"""The engine's settings: one frozen dataclass, checked once.

Values that are known only after a model is loaded (`max_model_len` capped by the model's
positions, `num_kvcache_blocks` from memory, `vocab_size`, `eos`) are filled in by
`dataclasses.replace`; nothing here is ever changed in place.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from nanoinfer.sampling_params import as_int, as_ints, as_number, refuse_unknown


@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine. Names and defaults follow nano-vLLM.

    Args:
        model: what the engine was built from; informational.
        max_num_batched_tokens: most tokens one step computes.
        max_num_seqs: most sequences in one step's batch (not in the running queue).
        max_model_len: most tokens of a request, prompt and completion together.
        gpu_memory_utilization: share of GPU memory the engine may use, in (0, 1].
        tensor_parallel_size: number of devices that share the model.
        enforce_eager: never replay CUDA graphs.
        kvcache_block_size: token slots in one KV cache block.
        num_kvcache_blocks: blocks in the pool; -1 lets the engine choose.
        device: "auto", "cpu" or "cuda".
        dtype: "auto" (float32 on the CPU, the checkpoint's own on a GPU), "float32" or "bfloat16".
        attention_backend: "auto" or the name of a backend.
        policy: a name in `POLICIES`: "prefill_first", "mixed", or one of your own.
        enable_prefix_caching: let requests share KV blocks of equal prefixes.
        overlap: schedule the next step while the device computes this one, before its tokens are known; False waits for
            them, None chooses (True on a GPU). Outputs are the same; `docs/why.md` tells what differs.
        load_format: "auto" reads the checkpoint, "dummy" draws random weights.
        seed: of everything random in this engine.
        eos: ids that end a sequence.
        vocab_size: ids must be below it; None skips that check (the simulator has no vocabulary).

    Raises:
        TypeError: an unknown field; the message names the nearest known one.
        ValueError: a value out of range; the message names field, value and what is allowed.
    """

    model: str = ""
    max_num_batched_tokens: int = 16384
    max_num_seqs: int = 512
    max_model_len: int = 4096
    gpu_memory_utilization: float = 0.9
    tensor_parallel_size: int = 1
    enforce_eager: bool = False
    kvcache_block_size: int = 256
    num_kvcache_blocks: int = -1
    device: str = "auto"
    dtype: str = "auto"
    attention_backend: str = "auto"
    policy: str = "prefill_first"
    enable_prefix_caching: bool = True
    overlap: bool | None = None
    load_format: str = "auto"
    seed: int = 0
    eos: tuple[int, ...] = ()
    vocab_size: int | None = None

    AT_LEAST: ClassVar[dict[str, int]] = {
        "max_num_batched_tokens": 1,
        "max_num_seqs": 1,
        "max_model_len": 2,  # one prompt token and one new token
        "tensor_parallel_size": 1,
        "kvcache_block_size": 1,
    }
    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        "dtype": ("auto", "float32", "bfloat16"),
        "load_format": ("auto", "dummy"),
    }
    FLAGS: ClassVar[tuple[str, ...]] = ("enforce_eager", "enable_prefix_caching")

    def __new__(cls, *_: Any, **settings: Any) -> EngineConfig:
        """Refuse unknown fields by name, before the generated __init__ sees them."""
        refuse_unknown([f.name for f in fields(cls)], settings, "setting")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name in (*self.AT_LEAST, "num_kvcache_blocks", "seed"):
            object.__setattr__(self, name, as_int(name, getattr(self, name)))  # frozen for callers; normalised here
        object.__setattr__(self, "eos", as_ints("eos", self.eos))
        self._check_tables()
        if self.num_kvcache_blocks != -1 and self.num_kvcache_blocks < 1:
            raise ValueError(f"num_kvcache_blocks must be at least 1, or -1 to choose, got {self.num_kvcache_blocks}")
        if not 0 < as_number("gpu_memory_utilization", self.gpu_memory_utilization) <= 1:
            raise ValueError(f"gpu_memory_utilization must be in (0, 1], got {self.gpu_memory_utilization}")
        if self.vocab_size is not None and as_int("vocab_size", self.vocab_size) < 1:
            raise ValueError(f"vocab_size must be at least 1, got {self.vocab_size}")

    def _check_tables(self) -> None:
        for name, least in self.AT_LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name, allowed in self.CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        for name in self.FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.overlap is not None and not isinstance(self.overlap, bool):
            raise ValueError(f"overlap must be True, False or None, got {self.overlap!r}")

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON-ready values."""
        return asdict(self) | {"eos": list(self.eos)}
