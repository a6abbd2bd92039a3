"""The machine of a run: what it is, how busy it is, and which software stacks it can run.

Three rooms: `environment`, `usage` and `stacks`.
"""
