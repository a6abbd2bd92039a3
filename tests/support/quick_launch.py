"""launch.py's Launcher with a worker that needs no torch: python -m tests.support.quick_launch URI JOB...

A job is the JSON of `model.hparams` for quick_worker; several make a sweep, `--resume=ID` continues one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from conf.dataset_options import DatasetConfig
from conf.launch_options import TrackingConfig
from conf.schema import (
    ConfigError,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
    RunConfig,
    StackConfig,
)
from tests.support import forked
from tests.support.commands import environment
from tracking.jobs.handover import supervisor_process
from tracking.jobs.plan import sweep
from tracking.jobs.plan.job import Job
from tracking.jobs.queues.launcher import Launcher


def config(uri: str, number: int, hparams: dict[str, object]) -> RunConfig:
    return RunConfig(
        model=ModelConfig("quick", "quick:QUICK", 1, {}, {"none": {}}, OptimizerConfig(0.1), hparams=hparams),
        dataset=DatasetConfig("none"),
        precision=PrecisionConfig("fp32", "32"),
        stack=StackConfig("native"),
        tracking=TrackingConfig(uri, "tests", upload_wait_sec=float(os.environ.get("WAIT_SEC", "20"))),
        gpus=0,
        seed=number,
    )


def main(uri: str, *jobs: str) -> int:
    words = [word for word in jobs if not word.startswith("--")]
    sweep_jobs = [
        Job(config(uri, number, json.loads(text)), [f"seed={number}"]) for number, text in enumerate(words, 1)
    ]
    supervisor_process.SUPERVISOR = "tests.support.quick_supervisor"
    launcher = Launcher(sweep_jobs[0].config, [], time.monotonic())
    try:
        for word in jobs:
            if word.startswith("--resume="):
                folder = Path("runs").resolve() / word.partition("=")[2]
                return launcher.run_sweep(sweep.read(folder), [], folder)
        if len(sweep_jobs) > 1:
            return launcher.run_sweep(sweep_jobs, ["-m", f"seed=1..{len(sweep_jobs)}"])
        return launcher.run_single(sweep_jobs[0])
    except ConfigError as error:
        print(f"refused: {error}")
        return 2


def start(cwd: Path, uri: str, *jobs: dict[str, object] | str, **environ: str) -> subprocess.Popen[str]:
    """The command above as a process, with its output in a pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.quick_launch", uri, *texts(jobs)],
        cwd=cwd, env=environment(**environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def begin(cwd: Path, uri: str, *jobs: dict[str, object] | str, **environ: str) -> forked.Forked | subprocess.Popen[str]:
    """As `start`, in a fork of a process that has imported MLflow, where a fork tells the same."""
    if not forked.possible():
        return start(cwd, uri, *jobs, **environ)
    return forked.Forked([uri, *texts(jobs)], cwd, environment(**environ), script=__file__)


def texts(jobs: Sequence[dict[str, object] | str]) -> list[str]:
    return [job if isinstance(job, str) else json.dumps(job) for job in jobs]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
