"""Somebody answers for every run of a real Slurm, whenever its launcher is killed; and no job is submitted twice."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.cluster_runs import SHORT, journal_of, of_program
from tests.support.commands import ROOT, begin, collect, environment, launch, processes_of
from tests.support.folders import wait_for
from tests.support.slurm_cluster import Cluster
from tracking.jobs.follow.sync import sync
from tracking.jobs.node import scheduler_endings
from tracking.record import run_folder

pytestmark = [pytest.mark.service, pytest.mark.slow]

# Kills who submits a job as soon as Slurm has it, before it can write down its number.
KILLING = """\
#!/bin/sh
{sbatch} "$@" || exit $?
case "$*" in *--test-only*) ;; *) kill -9 $PPID;; esac
"""


def submitted(cluster: Cluster) -> list[str]:
    return cluster.ask("squeue", "--noheader", "--format=%i").split()


@pytest.mark.parametrize("how", ["killed", pytest.param("detached", marks=pytest.mark.exhaustive)])
def test_a_resumed_sweep_goes_on_with_what_slurm_has(
    cluster: Cluster, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("-m", *of_program(tmp_path), "seed=1,2", "cluster.lines=[--hold]", "cluster.jobs_at_once=2")
    (tmp_path / "go").touch()
    if how == "killed":
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/sbatch").write_text(KILLING.format(sbatch=shutil.which("sbatch")))
        (tmp_path / "bin/sbatch").chmod(0o755)
        launch(tmp_path, *asked, **cluster.env, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
        assert len(submitted(cluster)) == 1
        assert not list(tmp_path.rglob("cluster.json"))
    else:
        launch(tmp_path, *asked, "detach=true", **cluster.env)
        assert len(submitted(cluster)) == 2
    before = submitted(cluster)
    [sweep] = [path.parent for path in tmp_path.glob("runs/*/sweep.json")]
    [*_, folder] = run_folder.run_folders(sweep)
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    monkeypatch.setattr(scheduler_endings, "_answers", scheduler_endings.Answers())
    outcomes = {outcome.folder: outcome for outcome in sync([folder])}
    assert {outcome.state for outcome in outcomes.values()} == {"running"}
    assert any(f"Slurm's job {job_id} has it" in outcomes[folder].message for job_id in before)
    resumed = begin(tmp_path, f"sweep.resume={sweep.name}", **cluster.env)

    def released() -> bool:
        for job_id in submitted(cluster):
            cluster.ask("scontrol", "release", job_id)
        return resumed.poll() is not None

    wait_for(released)
    run = collect(resumed, tmp_path)
    assert run.code == 0, run.output
    assert len(run.folders) == 2
    job_ids = {json.loads((path / "cluster.json").read_text())["job_id"] for path in run.folders}
    assert job_ids >= set(before)
    assert {json.loads((path / "result.json").read_text())["status"] for path in run.folders} == {"finished"}


def test_a_run_that_was_ended_before_it_began_does_not_begin(cluster: Cluster, tmp_path: Path) -> None:
    run = launch(tmp_path, *SHORT, "cluster.lines=[--hold]", "detach=true", **cluster.env)
    job_id = json.loads((run.folder / "cluster.json").read_text())["job_id"]
    [sync_outcome] = sync([run.folder], ended=True)
    assert "ended as killed" in sync_outcome.message
    cluster.ask("scontrol", "release", job_id)
    wait_for(lambda: job_id not in submitted(cluster))
    assert "the run has ended already" in (run.folder / "slurm.log").read_text()
    assert "init_start" not in journal_of(tmp_path)


def test_steps_of_an_allocation_end_with_a_launcher_that_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    options = [word for word in of_program(tmp_path) if not word.startswith("cluster")]
    here = [sys.executable, str(ROOT / "launch.py"), *options, "cluster=here", "nodes=2"]
    holder = subprocess.Popen(
        ["salloc", "-N2", "--ntasks-per-node=1", "bash", "-c", f"{shlex.join(here)}; sleep 600"], cwd=tmp_path,
        env=environment(**cluster.env), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: "eval_accuracy" in journal_of(tmp_path) or holder.poll() is not None)
        [launcher] = [process for process in processes_of(tmp_path) if process.cmdline()[1:2] == [here[1]]]
        launcher.kill()
        wait_for(lambda: not [process for process in processes_of(tmp_path) if runs(process)])
        [path] = tmp_path.glob("runs/*/result.json")
        assert json.loads(path.read_text())["failure"]["message"] == "its launcher was killed"
        assert holder.poll() is None  # The allocation is the user's.
    finally:
        for process in processes_of(tmp_path):  # salloc ends with what it runs
            if process.pid != holder.pid:
                with suppress(psutil.Error):  # it ended meanwhile
                    process.kill()
        holder.wait()


def runs(process: psutil.Process) -> bool:
    """Whether it is a supervisor, a worker or the program."""
    try:
        return any("tracking.jobs." in word or word == "program.py" for word in process.cmdline())
    except psutil.Error:
        return False
