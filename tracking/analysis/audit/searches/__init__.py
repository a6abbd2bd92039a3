"""The answer of a search once more, from the folders of its runs: figures, intervals, ratios, counts and budget.

Not worked out again are the exploring's own choices: which settings it proposed, and what a grid would have taken.
"""

from __future__ import annotations

from tracking.analysis.audit.searches.search_answer import check

__all__ = ["check"]
