"""Saves checkpoints: when they are due, what they hold beyond Lightning's own, and how they are written.

A thread writes a checkpoint that is due after a step, so that training hardly waits for it. Files of checkpoints and
of trained models are complete or absent.
"""

from trainers.loop.saving.checkpoint import CheckpointCallback
from trainers.loop.saving.copies import ALIGNMENT, num_bytes
from trainers.loop.saving.interval import Interval, SavedAndEnded, interval_of
from trainers.loop.saving.same_data import data_version, keep_to_version
from trainers.loop.saving.whole_files import WholeFiles

__all__ = [
    "ALIGNMENT", "CheckpointCallback", "Interval", "SavedAndEnded", "WholeFiles", "data_version", "interval_of",
    "keep_to_version", "num_bytes",
]  # fmt: skip
