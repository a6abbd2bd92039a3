"""Tests everything that a run needs, before a run needs it.

`examine` yields a finding for each thing: the GPUs and how they talk, the tracking server with an upload that is
deleted again, the disk, the data. `python -m tracking doctor` prints them.
"""

from tracking.jobs.doctor.examination import Subject, examine
from tracking.jobs.doctor.finding import Finding

__all__ = ["Finding", "Subject", "examine"]
