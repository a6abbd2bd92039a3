"""Every number of a report once more, worked out from the run folders' journals.

The arithmetic here is written apart from the report's and imports none of it: a mistake in one shows as a difference.
It reads the files that a report wrote and the run folders, and nothing else.
"""

from __future__ import annotations

from tracking.analysis.audit.audit import audit
from tracking.analysis.audit.report_files import audit_folder

__all__ = ["audit", "audit_folder"]
