"""The process beside a script, and what the script's own process remembers from one run to the next."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from tracking.api import script
from tracking.base import installation
from tracking.machine.environment import processes

COMPANION = installation.module("tracking.jobs.follow.companion")
READY_SEC = 20.0  # The script waits so long, off the clock, for its companion.
LOG = ".companion.log"


@dataclass
class ScriptProcess:
    """What a process that trains remembers from one run to the next."""

    ended: float | None = None  # monotonic time at which the last run ended
    companions: list[subprocess.Popen[bytes]] = field(default_factory=list)  # Python warns of a forgotten process.

    def since_begin(self, called: float) -> float:
        """Seconds since the process started, or since its last run ended. A notebook's kernel is there for hours before
        it trains: its run begins when the training is asked for, at the monotonic time `called`."""
        begun = processes.begun() if self.ended is None else self.ended
        return time.monotonic() - (called if script.in_notebook() else begun)

    def keep(self, companion: subprocess.Popen[bytes]) -> None:
        """Remember a companion, and reap those that have ended."""
        self.companions[:] = [before for before in self.companions if before.poll() is None] + [companion]


THIS_PROCESS = ScriptProcess()


def start_companion(folder: Path, descriptor: int) -> subprocess.Popen[bytes] | None:
    """Start the process beside the script, and wait until it watches. Warns where that cannot be."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
    environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(installation.SEARCH_FOLDER), environ.get("PYTHONPATH", "")])
    )
    # Ranks that torchrun started are its children, and the run's processes as the script is.
    root = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else os.getpid()
    argv = [sys.executable, "-P", "-m", COMPANION]
    argv += [str(folder.absolute()), str(os.getpid()), str(root)]
    try:
        with (folder / LOG).open("ab") as log:
            # A session of its own: Ctrl-C is for the script.
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environ,
                start_new_session=True, pass_fds=[descriptor],
            )  # fmt: skip
    except OSError as error:
        warnings.warn(f"timetrial: nothing is uploaded and the machine is not sampled: {error}", stacklevel=2)
        return None
    assert process.stdout
    if not select.select([process.stdout], [], [], READY_SEC)[0] or process.stdout.readline() != b"ready\n":
        warnings.warn(f"timetrial: the companion did not start; {folder / LOG} says why", stacklevel=2)
    process.stdout.close()
    return process
