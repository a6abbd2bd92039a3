"""launch.py that dies at a moment of its own: dying_launch.py SIGNAL MOMENT ARGUMENT...

The moments are those at which somebody else is about to answer for a folder, and the folder is of a job, or a sweep's.
"""

from __future__ import annotations

import os
import runpy
import signal
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
    from tracking.jobs.handover import SupervisorProcess
    from tracking.jobs.plan import run_setup, sweep
    from tracking.jobs.queues.this_machine import Machine
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
        Machine.submit = dying(Machine.submit, number)  # type: ignore[method-assign]
    elif moment == "started":  # of two jobs, the second
        assigned: list[object] = []

        def is_second(*_: object) -> bool:
            assigned.append(None)
            return len(assigned) == 2

        SupervisorProcess.assign = dying(SupervisorProcess.assign, number, is_second, after=True)  # type: ignore[method-assign]
    assert moment in MOMENTS
    assert run_lock


if __name__ == "__main__":
    signal_name, chosen, *sys.argv[1:] = sys.argv[1:]
    prepare(chosen, signal.Signals[signal_name])
    sys.argv[0] = str(ROOT / "launch.py")
    runpy.run_path(sys.argv[0], run_name="__main__")
