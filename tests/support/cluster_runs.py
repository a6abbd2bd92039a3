"""Runs on a cluster of tests/support/slurm_cluster.py, and what they leave."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mlflow import MlflowClient

from tests.support.commands import ROOT, TINY, collect, environment
from tests.support.folders import wait_for
from tests.support.forked import Forked
from tracking.store.mirror import Mirror

ON = ("gpus=0", "cluster=slurm", "cluster.exclusive=false", "cluster.poll_sec=1")
SHORT = (*TINY, *ON, "max_epochs=2", "log_every_n_steps=1", "tracking.system_metrics_interval_sec=0")
# Its steps rest, and its nodes import no MLflow for its collectors: who waits for the run, or ends it, has the cores.
ENDLESS = (
    *TINY, *ON, "max_epochs=100000", "target=1", "stop_at_target=false", "model.hparams.rest_sec=0.02",
    "tracking.system_metrics_interval_sec=0",
)  # fmt: skip

# A program in place of a training: its nodes import no PyTorch. It rests in its third epoch until there is a file `go`.
PROGRAM = """
import pathlib, time
for epoch in range(1, 21):
    while epoch == 3 and not pathlib.Path("go").exists():
        time.sleep(0.05)
    print(f"epoch {epoch} accuracy {0.04 * epoch:.2f}", flush=True)
"""


def of_program(cwd: Path) -> tuple[str, ...]:
    (cwd / "program.py").write_text(PROGRAM)
    return (
        *ON, "model=program", f"program.command=env {sys.executable} program.py {{seed}}", "target=0.99",
        '+program.metrics={eval/accuracy: "accuracy ([0-9.]+)"}', 'program.epoch="epoch ([0-9]+)"',
        "tracking.system_metrics_interval_sec=0",
    )  # fmt: skip


def journal_of(cwd: Path) -> str:
    return "".join(path.read_text() for path in cwd.glob("runs/**/journal.jsonl"))


def trains(cwd: Path, process: Forked | subprocess.Popen[str], attempt: int = 1) -> None:
    """Wait until two epochs of an attempt have begun."""

    def begun() -> bool:
        parts = journal_of(cwd).split('"init_start"')
        return len(parts) > attempt and parts[attempt].count('"epoch_start"') > 1

    wait_for(lambda: begun() or process.poll() is not None)
    assert begun(), collect(process, cwd).output


def tags(cwd: Path, folder: Path) -> dict[str, str]:
    run_id = Mirror(folder).run_id
    assert run_id
    return dict(MlflowClient(f"sqlite:///{cwd / 'mlflow.db'}").get_run(run_id).data.tags)


def tracking(cwd: Path, *arguments: str, **extra: str) -> Forked:
    return Forked(arguments, cwd, environment(**extra), script=str(ROOT / "tracking/__main__.py"))
