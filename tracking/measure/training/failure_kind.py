"""Map exceptions to kinds of failure, the values of the tag `failure`."""

from __future__ import annotations

import signal

import torch

from conf.schema import ConfigError
from tracking.measure.training.meter import NonFiniteLoss
from tracking.record import run_folder


def classify(error: BaseException) -> str:
    """The kind of failure of an exception: oom | nan | bad_input | disk_full | signal:N | error."""
    if isinstance(error, ConfigError):
        return "bad_input"
    if isinstance(error, (NonFiniteLoss, FloatingPointError)):  # trainers.data.coco raises the second
        return "nan"
    if isinstance(error, KeyboardInterrupt):
        return f"signal:{signal.SIGINT.value}"
    if type(error).__name__ == "SIGTERMException":  # Lightning's
        return f"signal:{signal.SIGTERM.value}"
    if isinstance(error, Exception) and run_folder.is_full(error):
        return "disk_full"
    # PyTorch's CPU allocator raises a plain RuntimeError.
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator" in str(error):
        return "oom"
    return "error"
