"""Recompute the numbers of a report's answer from the journals.

Its sentences are compared with those that these numbers make.
"""

from tracking.analysis.audit.answers.answer import check

__all__ = ["check"]
