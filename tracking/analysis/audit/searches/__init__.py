"""Recompute the answer of a search from the folders of its runs: figures, intervals, ratios, counts and budget.

Exploring's own choices are not recomputed: the settings that it proposed, and the cost of a grid.
"""

from tracking.analysis.audit.searches.search_answer import check

__all__ = ["check"]
