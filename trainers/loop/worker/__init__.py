"""The worker process, `python -m trainers.loop.worker RUN_DIR`: it starts the training, and says how it ended.

Its agent is torchrun's, which forks a process a device; each of them runs trainers.loop.train. All that is here can be
imported without PyTorch, which the agent imports once, before it forks.
"""

from __future__ import annotations

from trainers.loop.worker.agent import main
from trainers.loop.worker.signal_deaths import die_with

__all__ = ["die_with", "main"]
