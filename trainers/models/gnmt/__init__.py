"""GNMT, a recurrent translator, and smaller sizes of it."""

from trainers.models.gnmt.module import WORKLOAD, GnmtTranslator

__all__ = ["WORKLOAD", "GnmtTranslator"]
