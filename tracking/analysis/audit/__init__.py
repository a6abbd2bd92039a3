"""Recompute every number of a report from the run folders' journals.

The arithmetic is independent of the report's and imports none of it, so a mistake in either shows as a difference.
It reads the files that a report wrote and the run folders, and nothing else.
"""

from tracking.analysis.audit.audit import audit
from tracking.analysis.audit.report_files import audit_folder

__all__ = ["audit", "audit_folder"]
