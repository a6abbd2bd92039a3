"""MiniGo, as in MLPerf Training v0.5: a network that learns Go by games that it plays against itself.

A generation of games, a training on the newest positions, and a match that decides which network plays the next games.
"""

from trainers.models.minigo.module import WORKLOAD

__all__ = ["WORKLOAD"]
