"""What a terminal shows of runs while they train, and the command that is told of trouble.

Both read folders alone, so that they work on any host that sees these.
"""

from __future__ import annotations

from tracking.jobs.watch import screen
from tracking.jobs.watch.alerts import Alerts
from tracking.jobs.watch.live_run import LiveRun

__all__ = ["Alerts", "LiveRun", "screen"]
