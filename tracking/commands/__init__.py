"""The commands beside launch.py: `python -m tracking NAME`, a module each.

Each has its options and turns an outcome into words and an exit code. The work itself is done by the other rooms.
"""

from __future__ import annotations

from tracking.commands import doctor, report

__all__ = ["doctor", "report"]
