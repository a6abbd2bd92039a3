"""Checks that a folder is this user's own, and lists what it would execute if it is not.

Every command that acts on a folder asks here first.
"""

from __future__ import annotations

from tracking.jobs.trust import ownership

__all__ = ["ownership"]
