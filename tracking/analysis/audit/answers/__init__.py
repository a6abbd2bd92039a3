"""The answer of a report, once more: its numbers from the journals.

Its sentences are compared with those that these numbers make.
"""

from __future__ import annotations

from tracking.analysis.audit.answers.answer import check

__all__ = ["check"]
