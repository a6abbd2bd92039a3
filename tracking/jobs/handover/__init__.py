"""How a launcher hands a run to a supervisor on its own machine.

It imports little: a launcher starts its supervisor before it has imported the rest of itself.
"""

from tracking.jobs.handover.fork_servers import BEGAN, ENDED, SERVE, STALE, Forks, ForkServers
from tracking.jobs.handover.forked_worker import ForkedWorker, Started, fork_or_start
from tracking.jobs.handover.inheritance import Inheritance, set_memory_policy
from tracking.jobs.handover.lifeline import LAUNCHER, STEP, Lifeline
from tracking.jobs.handover.supervisor_process import Assignment, SupervisorProcess, ahead, received

__all__ = [
    "BEGAN", "ENDED", "LAUNCHER", "SERVE", "STALE", "STEP", "Assignment", "ForkServers", "ForkedWorker", "Forks",
    "Inheritance", "Lifeline", "Started", "SupervisorProcess", "ahead", "fork_or_start", "received",
    "set_memory_policy",
]  # fmt: skip
