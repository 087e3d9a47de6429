"""Ranks as threads of one process, each with its own connection to the others, and checkpoints to share among them."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from runs_over_scheduler import GREEDY, complete
from safetensors.torch import save_file
from torch.distributed import HashStore

from nanoinfer.config import EngineConfig
from nanoinfer.models.config import load_config
from nanoinfer.models.layers import Placement
from nanoinfer.models.loader import named_parameters
from nanoinfer.models.qwen3 import Parts, Qwen3ForCausalLM
from nanoinfer.parallel.group import ProcessRanks
from nanoinfer.parallel.runner import ParallelRunner, Team
from nanoinfer.runner.attention import make_backend
from nanoinfer.runner.model_runner import ModelRunner
