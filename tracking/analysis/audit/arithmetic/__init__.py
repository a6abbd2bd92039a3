"""Statistics of plain numbers, computed independently: means, ratios, tests; and whether a text shows these numbers.

It is independent of tracking.analysis.statistics, which reports use. The rest of the audit supplies the numbers, from
the journals and from the report.
"""

from tracking.analysis.audit.arithmetic.block_tests import BlockTable
from tracking.analysis.audit.arithmetic.censored_means import Moments, Observations, moments_of, ratio, wilson
from tracking.analysis.audit.arithmetic.chosen_best import Wanted, factor_bounds, level, would_tell
from tracking.analysis.audit.arithmetic.pair_tests import (
    PairTest,
    corrected,
    difference_p,
    pair_of,
    sooner_p,
    untested,
    without_shares,
)
from tracking.analysis.audit.arithmetic.t_tests import interval_of_mean
from tracking.analysis.audit.arithmetic.texts import EXACT, close, is_invalid, meets, says, step, text_of, tolerance

__all__ = [
    "EXACT", "BlockTable", "Moments", "Observations", "PairTest", "Wanted", "close", "corrected", "difference_p",
    "factor_bounds", "interval_of_mean", "is_invalid", "level", "meets", "moments_of", "pair_of", "ratio", "says",
    "sooner_p", "step", "text_of", "tolerance", "untested", "wilson", "without_shares", "would_tell",
]  # fmt: skip
