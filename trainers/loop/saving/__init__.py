"""Checkpoints: when they are made, what is in them beside what Lightning knows, and how they are written.

A checkpoint after a step is written by a thread, so that the training hardly waits for it. Trained models are written
in the same way, whole or not at all.
"""

from trainers.loop.saving.background import num_bytes
from trainers.loop.saving.checkpoint import CheckpointCallback, Interval, interval_of
from trainers.loop.saving.stopping import SavedAndEnded
from trainers.loop.saving.whole_files import WholeFiles

__all__ = ["CheckpointCallback", "Interval", "SavedAndEnded", "WholeFiles", "interval_of", "num_bytes"]
