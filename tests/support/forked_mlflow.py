"""MLflow's server in a fork of a process that has imported most of it: a log file, then uvicorn's arguments."""

from __future__ import annotations

import os
import runpy
import sys


def main(log: str) -> None:
    os.setsid()  # It is killed with all that it starts.
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(descriptor, number)
    runpy.run_module("uvicorn", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv.pop(1))
