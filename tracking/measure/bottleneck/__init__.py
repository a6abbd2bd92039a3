"""What limited a run: shares of its time that add up to 1, its place under the roofline, and its traffic.

All of it is computed from a run's measurements, and from ceilings measured on the same hardware. A cause without a
measurement is not named. docs/bottleneck.md has the rules.
"""

from tracking.measure.bottleneck import ceilings, goodput, possible, roofline, slow_rank
from tracking.measure.bottleneck.advice import alone_first, first_try, shared_cores
from tracking.measure.bottleneck.ceilings import Ceilings
from tracking.measure.bottleneck.goodput import account
from tracking.measure.bottleneck.run_limits import examine, explain, verdict_lines
from tracking.measure.bottleneck.run_options import RunOptions
from tracking.measure.bottleneck.time_shares import NAMES, limit

__all__ = [
    "NAMES", "Ceilings", "RunOptions", "account", "alone_first", "ceilings", "examine", "explain",
    "first_try", "goodput", "limit", "possible", "roofline", "shared_cores", "slow_rank", "verdict_lines",
]  # fmt: skip
