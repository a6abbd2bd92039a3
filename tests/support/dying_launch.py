"""launch.py that dies at a moment of its own: dying_launch.py SIGNAL MOMENT ARGUMENT...

The moments are those at which somebody else is about to answer for a folder, and the folder is of a job, or a sweep's.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MOMENTS = (
    "sweep made",
    "sweep defined",
    "job made",
    "job named",
    "config half written",
    "prepared",
    "started",
    "ticket",
)


def dying(function: Callable[..., Any], number: int, when: Callable[..., bool] = lambda *_: True, after: bool = False):
    """The function, which the process does not survive: not its begin, or with `after` not its end."""

    def die(*arguments: Any, **named: Any) -> Any:
        meant = when(*arguments)
        if meant and not after:
            os.kill(os.getpid(), number)
        answer = function(*arguments, **named)
        if meant and after:
            os.kill(os.getpid(), number)
        return answer

    return die


def prepare(moment: str, number: int) -> None:
    from tracking.jobs.node import ticket
    from tracking.jobs.plan import run_setup, sweep
    from tracking.jobs.queues.share_queue import SharedMachine
    from tracking.record import documents, run_lock

    def writes(name: str) -> Callable[..., bool]:
        return lambda path, *_: path.name == name

    if moment == "sweep made":
        sweep.prepare = dying(sweep.prepare, number)
    elif moment == "sweep defined":
        documents.write_json = dying(documents.write_json, number, writes("sweep.json"), after=True)
    elif moment == "job made":
        run_setup.prepare = dying(run_setup.prepare, number)
    elif moment == "job named":
        documents.write_text = dying(documents.write_text, number, writes("overrides.yaml"))
    elif moment == "config half written":
        os.fsync = dying(
            os.fsync, number, lambda file: ".config.yaml." in str(Path(f"/proc/self/fd/{file}").readlink())
        )
    elif moment == "prepared":
        SharedMachine.submit = dying(SharedMachine.submit, number)  # type: ignore[method-assign]
    elif moment == "started":  # of two jobs, the second
        started: list[object] = []

        class Popen(subprocess.Popen):  # type: ignore[type-arg]
            def __init__(self, command: Any, *arguments: Any, **named: Any) -> None:
                super().__init__(command, *arguments, **named)
                started.extend(["supervisor"] * ("pass_fds" in named))
                if len(started) == 2:
                    os.kill(os.getpid(), number)

        subprocess.Popen = Popen  # type: ignore[misc]
    elif moment == "ticket":
        ticket.issue = dying(ticket.issue, number, after=True)
    assert moment in MOMENTS
    assert run_lock


if __name__ == "__main__":
    signal_name, chosen, *sys.argv[1:] = sys.argv[1:]
    prepare(chosen, signal.Signals[signal_name])
    sys.argv[0] = str(ROOT / "launch.py")
    runpy.run_path(sys.argv[0], run_name="__main__")
