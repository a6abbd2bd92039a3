"""Every printed figure of a report once more, worked out from the run folders' journals.

The arithmetic here is written apart from the report's and imports none of it: a mistake in one shows as a difference.
It reads a report's JSON and the journals, and nothing else.
"""

from __future__ import annotations

from tracking.audit import audit

__all__ = ["audit"]
