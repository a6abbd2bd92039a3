"""NeuMF, the recommender of MLPerf Training v0.5: it predicts which item a user will rate next."""

from trainers.models.ncf.module import WORKLOAD

__all__ = ["WORKLOAD"]
