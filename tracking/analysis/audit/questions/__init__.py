"""Recompute a report's tables for choosing hardware, over all workloads.

Like the rest of the audit, it shares no arithmetic with the report.
"""

from tracking.analysis.audit.questions.asked_tables import gain_of, over, shapes, within
from tracking.analysis.audit.questions.gains import gains, gaps, jobs, traffic
from tracking.analysis.audit.questions.systems import systems

__all__ = ["gain_of", "gains", "gaps", "jobs", "over", "shapes", "systems", "traffic", "within"]
