"""Statistics on plain numbers: means with errors, tests, and censored times to an event.

This room knows neither runs nor metrics. Every formula cites its source. benchmarks/reports measures how often the
tests err.
"""

from tracking.analysis.statistics.best_of import candidates, corrected, one_sided_level
from tracking.analysis.statistics.more_often import Counts, Often, counts, often, proven_share
from tracking.analysis.statistics.power import POWER, Needed, Pilot, pilot, pilot_of_pairs, runs_to_tell
from tracking.analysis.statistics.ratios import exceeds, falls_below, ratio_bounds
from tracking.analysis.statistics.repeats import finite, holm, mean_and_standard_error, olympic_mean
from tracking.analysis.statistics.sooner import CUT_OFF, p_sooner, wins
from tracking.analysis.statistics.t_tests import floored_variance, paired_t_test, t_test
from tracking.analysis.statistics.time_to_event import Share, Times, reached_by, share

__all__ = [
    "CUT_OFF", "POWER", "Counts", "Needed", "Often", "Pilot", "Share", "Times", "candidates", "corrected",
    "counts", "exceeds", "falls_below", "finite", "floored_variance", "holm", "mean_and_standard_error", "often",
    "olympic_mean", "one_sided_level", "p_sooner", "paired_t_test", "pilot", "pilot_of_pairs", "proven_share",
    "ratio_bounds", "reached_by", "runs_to_tell", "share", "t_test", "wins",
]  # fmt: skip
