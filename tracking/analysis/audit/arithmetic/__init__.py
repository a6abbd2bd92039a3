"""Statistics of plain numbers, computed independently: means, ratios, tests; and whether a text shows these numbers.

It is written apart from tracking.analysis.statistics, which makes a report. The rest of the audit brings the numbers,
from the journals and from the report.
"""

from __future__ import annotations

from tracking.analysis.audit.arithmetic.censored_means import Moments, Observations, moments_of, ratio, wilson
from tracking.analysis.audit.arithmetic.chosen_best import Wanted, factor_bounds, level, would_tell
from tracking.analysis.audit.arithmetic.figure_keys import EXACT, meets, step, tolerance
from tracking.analysis.audit.arithmetic.pair_tests import PairTest, corrected, difference_p, pair_of
from tracking.analysis.audit.arithmetic.texts import close, is_invalid, says, text_of

__all__ = [
    "EXACT",
    "Moments",
    "Observations",
    "PairTest",
    "Wanted",
    "close",
    "corrected",
    "difference_p",
    "factor_bounds",
    "is_invalid",
    "level",
    "meets",
    "moments_of",
    "pair_of",
    "ratio",
    "says",
    "step",
    "text_of",
    "tolerance",
    "wilson",
    "would_tell",
]
