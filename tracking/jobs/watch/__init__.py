"""The terminal's view of runs that train, and the command that is run on trouble.

Both read only run folders, so they work on any host that sees these.
"""

from tracking.jobs.watch import screen
from tracking.jobs.watch.alerts import Alerts
from tracking.jobs.watch.live_run import LiveRun

__all__ = ["Alerts", "LiveRun", "screen"]
