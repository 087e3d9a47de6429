"""What ranks above 0 do: build their part of the model, then compute every step that rank 0 sends.

They schedule nothing and send no tokens back, for all ranks sample the same ones: `concat` gives each of them the same
bits as logits, the keys of the random numbers come with the step, and the same program on the same kind of device does
the same with both.

Started as `python -m nanoinfer.parallel.worker`, with one line of JSON on stdin.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from nanoinfer.config import EngineConfig
from nanoinfer.parallel.group import ProcessRanks, RanksLost
from nanoinfer.runner.device import resolve_device
from nanoinfer.runner.model_runner import ModelRunner

HOST = "127.0.0.1"
LOST = 3  # exit code of a rank that ended because another one did
PARENT_CHECK_SECONDS = 0.5


def here(rank: int) -> str:
    """The key that a worker sets in the store when it is ready to connect."""
    return f"rank {rank} is here"


def serve(config: EngineConfig, model_dir: Path, ranks: ProcessRanks) -> None:
    """Compute what rank 0 computes, until it closes. Raises RanksLost when it is gone."""
    runner = ModelRunner(config, model_dir, ranks)
    while step := ranks.receive():
        with runner.loaded.ready(step):
            runner.loaded.compute(step)
    runner.close()
    ranks.close()
    ranks.wait_for_abort()


def work(settings: dict[str, Any]) -> None:
    """Connect to rank 0 as the settings say, and serve."""
    config = EngineConfig(**settings["config"])
    rank, size, port = (settings[name] for name in ("rank", "size", "port"))
    device = resolve_device(config.device, rank)
    store = TCPStore(HOST, port, is_master=False, wait_for_workers=False)
    store.set(here(rank), "")
    serve(config, Path(settings["model_dir"]), ProcessRanks(store, rank, size, device, HOST))


def end_with(parent: int) -> None:
    """End this process soon after its parent has ended, even in the middle of an exchange."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(LOST)


def main() -> None:
    """Serve one engine. The exit code is 0 when rank 0 closed it, LOST when another rank was gone, 1 after an error."""
    settings = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with, args=(settings["parent"],), daemon=True).start()
    code = 0
    try:
        work(settings)
    except RanksLost as error:
        print(error, file=sys.stderr)
        code = LOST
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # a GPU that waits for a lost rank would keep an ordinary exit waiting


if __name__ == "__main__":
    main()
