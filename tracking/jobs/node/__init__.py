"""What happens on a node of a run: its worker from the start to the result, the other nodes, and the scheduler's word.

A node trains, samples itself into a journal of its own, and ends with the others. It is started over and over, so that
it imports little before its worker has started.
"""

from __future__ import annotations

from tracking.jobs.node import endings, lifeline, node_supervision, shares, signals, slurm, supervision, ticket
from tracking.jobs.node.rendezvous import nodes
from tracking.jobs.node.rendezvous.nodes import Nodes
from tracking.jobs.node.reopening import reopen
from tracking.jobs.node.shares import Share, keep_to_share
from tracking.jobs.node.signals import Interrupted
from tracking.jobs.node.slurm import JobState
from tracking.jobs.node.supervisor import AGAIN, supervise
from tracking.jobs.node.ticket import Ticket

__all__ = [
    "AGAIN",
    "Interrupted",
    "JobState",
    "Nodes",
    "Share",
    "Ticket",
    "endings",
    "keep_to_share",
    "lifeline",
    "node_supervision",
    "nodes",
    "reopen",
    "shares",
    "signals",
    "slurm",
    "supervise",
    "supervision",
    "ticket",
]
