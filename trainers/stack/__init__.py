"""How a worker's command is built: which interpreter, in which environment.

The launcher imports this room, so it needs no PyTorch.
"""

from __future__ import annotations

from trainers.stack.command import LAUNCHER, worker_command

__all__ = ["LAUNCHER", "worker_command"]
