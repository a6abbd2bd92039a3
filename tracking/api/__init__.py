"""A training that somebody else wrote, tracked from inside: a callback for Lightning, a context manager for any loop.

Beside the script runs a companion process. It samples the machine, mirrors the run's folder to MLflow and ends the run
where the script was killed, and it outlives the script by as long as the upload takes.
"""

from __future__ import annotations

from tracking.api.callback import TimeTrial
from tracking.api.loop import Trial, time_trial

__all__ = ["TimeTrial", "Trial", "time_trial"]
