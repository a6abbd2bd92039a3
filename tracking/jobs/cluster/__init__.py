"""Runs whose nodes a scheduler starts: what it is told, what each node then does, and who follows from outside.

Submitting, following and running are apart: a run's folder, on a file system that all nodes share, is all they have in
common. Slurm is spoken to by its own commands alone.
"""

from __future__ import annotations
