"""The tables of a report over all workloads that answer a question, once more.

Its arithmetic is its own, as all of the audit's.
"""

from __future__ import annotations

from tracking.analysis.audit.questions.asked_tables import gain_of, over, shapes, within
from tracking.analysis.audit.questions.gains import gains, gaps, jobs, traffic
from tracking.analysis.audit.questions.systems import systems

__all__ = ["gain_of", "gains", "gaps", "jobs", "over", "shapes", "systems", "traffic", "within"]
