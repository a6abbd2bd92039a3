"""The facts of a report's runs from their journals, and the comparison of a report's values with them.

It reads run folders, and the options of the report.
"""

from tracking.analysis.audit.evidence import headings, selection, trees
from tracking.analysis.audit.evidence.content import Content, Rows, facts_of, mean_of, these
from tracking.analysis.audit.evidence.evidence import DEVICES, Evidence, Labels, without_devices
from tracking.analysis.audit.evidence.headings import (
    BESIDE,
    BUSY,
    CAUSES,
    FACTS,
    LEAST_SHARE,
    LIMITS,
    OVER_FP32,
    OWN_FACTS,
    PANELS,
    QUANTITIES,
    RATIOS,
    SHORT,
    SOFTWARE,
    SPEEDS,
    is_stack,
    largest,
)
from tracking.analysis.audit.evidence.spacing import OF_TARGETS, observed
from tracking.analysis.audit.evidence.trees import UNCHECKED, AuditResult, Near, That, by_identity, compare, name_of

__all__ = [
    "BESIDE", "BUSY", "CAUSES", "DEVICES", "FACTS", "LEAST_SHARE", "LIMITS", "OF_TARGETS", "OVER_FP32", "OWN_FACTS",
    "PANELS", "QUANTITIES", "RATIOS", "SHORT", "SOFTWARE", "SPEEDS", "UNCHECKED", "AuditResult", "Content", "Evidence",
    "Labels", "Near", "Rows", "That", "by_identity", "compare", "facts_of", "headings",
    "is_stack", "largest", "mean_of", "name_of", "observed", "selection", "these", "trees", "without_devices",
]  # fmt: skip
