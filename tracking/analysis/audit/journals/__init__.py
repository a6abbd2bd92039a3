"""Read a run independently, from its folder alone: what it is, how it ended, its figures, and what limited it.

It takes labels and events from journal.jsonl, what was asked for from config.yaml, and the end from result.json.
"""

from tracking.analysis.audit.journals.limits import FLOPS, INTENSITY, PREFIX
from tracking.analysis.audit.journals.run_figures import BEST, JournalFigures
from tracking.analysis.audit.journals.run_files import file_content

__all__ = ["BEST", "FLOPS", "INTENSITY", "PREFIX", "JournalFigures", "file_content"]
