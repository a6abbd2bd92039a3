"""Imports logs of trainings elsewhere as run folders, so that a report can compare them with ours.

A log names no driver or libraries, so such a run has no fingerprint.
"""

from tracking.jobs.importing.imports import Imported, LogOptions, import_log

__all__ = ["Imported", "LogOptions", "import_log"]
