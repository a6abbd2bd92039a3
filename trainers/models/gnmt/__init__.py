"""GNMT, the recurrent translator, and its smaller sizes."""

from __future__ import annotations

from trainers.models.gnmt.module import WORKLOAD, GnmtTranslator

__all__ = ["WORKLOAD", "GnmtTranslator"]
