"""The worker process, `python -m trainers.loop.worker RUN_DIR`: starts the training and reports how it ended.

torchrun's agent forks one process a device, and each runs trainers.loop.train. No module here imports PyTorch at the
top: the agent imports it once, before it forks.
"""

from trainers.loop.worker.agent import main
from trainers.loop.worker.signal_deaths import die_with

__all__ = ["die_with", "main"]
