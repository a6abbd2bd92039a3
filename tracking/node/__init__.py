"""What happens on a node of a run: its worker from the start to the result, the other nodes, and the scheduler's word.

A node trains, samples itself into a journal of its own, and ends with the others. It is started over and over, so that
it imports little before its worker has started.
"""

from __future__ import annotations

from tracking.node import endings, lifeline, shares, signals, slurm, supervision, ticket
from tracking.node.reopening import reopen
from tracking.node.several import node_supervision, nodes
from tracking.node.several.nodes import Nodes
from tracking.node.shares import Share, keep_to_share
from tracking.node.signals import Interrupted
from tracking.node.slurm import JobState
from tracking.node.supervisor import AGAIN, supervise
from tracking.node.ticket import Ticket

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
