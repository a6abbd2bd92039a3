"""Whether a folder is this user's own, and what it would have executed where it is not.

Whatever reads a folder and then acts asks here first.
"""

from __future__ import annotations

from tracking.jobs.trust import ownership

__all__ = ["ownership"]
