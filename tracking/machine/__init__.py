"""The machine of a run: what it is and how busy, and what it can run.

Rooms: `environment`, `usage`, `stacks` and `compiled`.
"""
