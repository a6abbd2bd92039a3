"""The stack's fingerprint, taken in a process of its own: it imports PyTorch where there is one, and ends.

So the worker itself stays as small as it is, and the program starts on a machine that nothing of ours computes on.
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import suppress
from typing import Any

from tracking.environment import Collector


def main(num_gpus: int) -> None:
    collector = Collector()
    torch: Any = None
    with suppress(Exception):  # A stack without PyTorch, or with one that cannot be loaded, is a stack as well.
        torch = importlib.import_module("torch")
    json.dump(collector.finish(torch, range(num_gpus)), sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]))
