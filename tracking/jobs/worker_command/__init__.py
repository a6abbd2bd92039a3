"""Builds a worker's command (interpreter and environment), and checks that its workload exists.

The launcher imports this room, so it needs no PyTorch.
"""

from tracking.jobs.worker_command.command import ALL_IMPORTS, LAUNCHER, WorkerCommand, run_module, worker_command
from tracking.jobs.worker_command.workload_module import check_workload

__all__ = ["ALL_IMPORTS", "LAUNCHER", "WorkerCommand", "check_workload", "run_module", "worker_command"]
