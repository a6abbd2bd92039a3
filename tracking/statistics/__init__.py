"""What numbers alone can say: means with their errors, tests, and times to an event that not every run came to.

It knows neither runs nor metrics. Every formula has its source beside it, and benchmarks/reports shows how often the
tests err.
"""

from __future__ import annotations

from tracking.statistics.chosen_pair import Choice
from tracking.statistics.counts import counted, verb
from tracking.statistics.more_often import Often, often
from tracking.statistics.repeats import (
    finite,
    holm,
    mean_and_standard_error,
    olympic_mean,
    repeats_to_tell,
    t_test,
)
from tracking.statistics.time_to_event import (
    Share,
    Times,
    exceeds,
    falls_below,
    lead,
    means,
    p_sooner,
    ratio_bounds,
    reached_by,
    share,
)

__all__ = [
    "Choice",
    "Often",
    "Share",
    "Times",
    "counted",
    "exceeds",
    "falls_below",
    "finite",
    "holm",
    "lead",
    "mean_and_standard_error",
    "means",
    "often",
    "olympic_mean",
    "p_sooner",
    "ratio_bounds",
    "reached_by",
    "repeats_to_tell",
    "share",
    "t_test",
    "verb",
]
