"""The commands beside launch.py: `python -m tracking NAME`, a module each.

Each has its options and turns an outcome into words, a JSON document and an exit code. The work itself is done by the
other rooms, which a command imports when it runs: `--help` and refusals answer at once.
"""

from __future__ import annotations

from tracking.cli.parser import COMMANDS, main

__all__ = ["COMMANDS", "main"]
