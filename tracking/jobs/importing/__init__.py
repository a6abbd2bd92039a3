"""Logs of trainings that took place elsewhere, made into run folders, so that a report sets ours beside them.

A log says when and what, and nothing of driver or libraries: such a run has no fingerprint.
"""

from __future__ import annotations

from tracking.jobs.importing.imports import Imported, LogOptions, import_log

__all__ = ["Imported", "LogOptions", "import_log"]
