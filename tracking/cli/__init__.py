"""The commands beside launch.py: `python -m tracking NAME`, one module for each.

A command has options, and turns an outcome into text, a JSON document and an exit code. Other rooms do the work. A
command imports them when it runs, so that `--help` and refusals answer at once.
"""

from tracking.cli.parser import COMMANDS, main

__all__ = ["COMMANDS", "main"]
