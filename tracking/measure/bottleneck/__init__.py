"""What limited a run: shares of its time that add up, its place under the roofline, and how much it moved.

Everything here is made from what a run has measured, and from ceilings that were measured on the same hardware. A cause
that was not measured is not named. docs/measurement.md has the rules.
"""

from __future__ import annotations

from tracking.measure.bottleneck import ceilings, goodput, possible, roofline
from tracking.measure.bottleneck.advice import Asked, first_try
from tracking.measure.bottleneck.ceilings import Ceilings
from tracking.measure.bottleneck.goodput import account
from tracking.measure.bottleneck.run_limits import Findings, examine, explain, told
from tracking.measure.bottleneck.time_shares import NAMES, limit

__all__ = [
    "NAMES", "Asked", "Ceilings", "Findings", "account", "ceilings", "examine", "explain", "first_try", "goodput",
    "limit", "possible", "roofline", "told",
]  # fmt: skip
