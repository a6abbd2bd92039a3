"""Checks that a folder is this user's own, and lists what it would execute if it is not.

Every command that acts on a folder asks here first.
"""

from tracking.jobs.trust import ownership

__all__ = ["ownership"]
