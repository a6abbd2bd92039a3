"""NeuMF, the recommender of MLPerf Training v0.5: which item a user will rate, out of who rated what."""

from __future__ import annotations

from trainers.models.ncf.module import WORKLOAD

__all__ = ["WORKLOAD"]
