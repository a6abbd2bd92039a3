"""python -m tracking fingerprint: the environment that a run would record, on this machine and now.

JSON: the document that a run keeps as fingerprint.json, every value (docs/measurement.md).
"""

from __future__ import annotations

import argparse

from tracking.commands.command import WELL, Answer, Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has no options of its own."""


def run(arguments: argparse.Namespace) -> Answer:
    from tracking.environment import Collector, format_table

    collector = Collector()
    import torch  # for the versions as loaded; beside nvidia-smi, which takes as long

    fingerprint = collector.finish(torch)
    return Answer(WELL, fingerprint, lambda: print(format_table(fingerprint)))


FINGERPRINT = Command("fingerprint", "print the environment that a run would record", add_arguments, run)
