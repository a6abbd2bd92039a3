"""A node of a run: its worker from the start to the result, the other nodes, and what the scheduler reports.

A node trains, samples itself into its own journal, and ends with the other nodes. Every run imports this in a new
process, so little is imported before the worker has started.
"""

from tracking.jobs.node import machine_shares, outcome, scheduler_endings, signals, slurm, ticket, worker_process
from tracking.jobs.node.interruption import AGAIN
from tracking.jobs.node.machine_shares import Share, keep_to_share
from tracking.jobs.node.nodes import preparing
from tracking.jobs.node.outcome import reopen
from tracking.jobs.node.signals import Interrupted
from tracking.jobs.node.slurm import JobState
from tracking.jobs.node.supervisor import join, supervise
from tracking.jobs.node.ticket import Ticket

__all__ = [
    "AGAIN", "Interrupted", "JobState", "Share", "Ticket", "join", "keep_to_share", "machine_shares", "outcome",
    "preparing", "reopen", "scheduler_endings", "signals", "slurm", "supervise", "ticket", "worker_process",
]  # fmt: skip
