"""What a report says: its answer, and the sentences of its tables.

Each sentence is a template filled from a record of numbers, so that an audit can recompute it.
"""

from tracking.analysis.report.sentences.answer import answer, spent
from tracking.analysis.report.sentences.beside_answer import beside, goodput
from tracking.analysis.report.sentences.table_sentences import (
    excluded,
    factor,
    factors,
    interval,
    lead,
    more_often,
    names_of,
    runs_needed,
    runs_that_would_tell,
    verdict,
)
from tracking.analysis.report.sentences.templates import ANSWER, Sentence

__all__ = [
    "ANSWER", "Sentence", "answer", "beside", "excluded", "factor", "factors", "goodput", "interval", "lead",
    "more_often", "names_of", "runs_needed", "runs_that_would_tell", "spent", "verdict",
]  # fmt: skip
