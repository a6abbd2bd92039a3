"""How a launcher hands a run to a supervisor on its own machine.

It imports little: a launcher starts its supervisor before it has imported the rest of itself.
"""

from __future__ import annotations

from tracking.jobs.handover.lifeline import LAUNCHER, STEP, Lifeline
from tracking.jobs.handover.supervisor_process import Assignment, SupervisorProcess, ahead, received

__all__ = ["LAUNCHER", "STEP", "Assignment", "Lifeline", "SupervisorProcess", "ahead", "received"]
