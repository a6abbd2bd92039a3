"""A worker without torch, for tests of what is around it: python -m tests.support.quick_worker RUN_DIR.

Reads what to do from the run's `model.hparams`: `rows` to write, `sec` between two, and `then`: finish, hang, fail, or
fill (the disk). Where the file `mended` exists, or when it does, it finishes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tracking.jobs.worker_command.command import LAUNCHER
from tracking.record import run_folder
from tracking.record.journal import Journal
from tracking.record.run_folder import Failure, Result
from trainers.loop.worker import die_with


def main(run_dir: Path) -> int:
    try:
        return work(run_dir)
    except OSError as error:  # trainers.loop.worker does so.
        if not run_folder.is_full(error):
            raise
        run_folder.write_result(run_dir, Result("failed", failure=Failure("disk_full", str(error))))
        return 1


def work(run_dir: Path) -> int:
    hparams = run_folder.read_config(run_dir).model.hparams
    print("these are the worker's last words")
    journal = Journal(run_dir / run_folder.JOURNAL)
    for step in range(hparams.get("rows", 3)):
        journal.metrics({"train/loss": 1 / (step + 1)}, step)
        time.sleep(hparams.get("sec", 0.0))
    mended = Path("mended")
    then = "finish" if mended.exists() else hparams["then"]
    while then == "hang" and not mended.exists():
        time.sleep(0.1)
    if then == "fill":
        fill(Path("filler"))
        for step in range(1000):  # a few fit into the page that the journal has begun
            journal.metrics({"train/loss": 0.0}, 1000 + step)
    if then == "fail":
        failure = Failure("oom", "out of memory", "the traceback")
        run_folder.write_result(run_dir, Result("failed", failure=failure))
        return 1
    run_folder.write_result(run_dir, Result("finished", metrics={"world_size": 1.0}))
    return 0


def fill(path: Path) -> None:
    """Take all the room that is left on the disk, as somebody else may do."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


if __name__ == "__main__":
    die_with(int(os.environ[LAUNCHER]))
    sys.exit(main(Path(sys.argv[1])))
