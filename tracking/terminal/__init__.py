"""What commands and the launcher print on: one console, and a standard output that may go away.

It is the ground floor, since everything that speaks to somebody needs it. It knows nothing of runs.
"""

from __future__ import annotations

from tracking.terminal.console import LastingStream, make_console

__all__ = ["LastingStream", "make_console"]
