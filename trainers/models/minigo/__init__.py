"""MiniGo, as in MLPerf Training v0.5: a network that learns Go from games against itself.

A generation plays games, trains on the newest positions, and holds a match that decides which network plays next.
"""

from trainers.models.minigo.module import WORKLOAD

__all__ = ["WORKLOAD"]
