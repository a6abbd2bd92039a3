"""Slurm with accounting: sacct says how a job has ended that the controller has forgotten, and accounts have names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from conf.launch_options import ClusterConfig
from conf.schema import ConfigError
from tests.support import slurm_accounting, slurm_cluster
from tests.support.folders import wait_for
from tests.support.slurm_cluster import Cluster, Unavailable
from tests.support.studied import config, make_run, make_sweep
from tracking.jobs.follow.sync import sync
from tracking.jobs.node import scheduler_endings, slurm, ticket
from tracking.jobs.node.ticket import Ticket
from tracking.jobs.queues.slurm_queues import BatchQueue
from tracking.record import Failure, Running, run_folder

pytestmark = [pytest.mark.service, pytest.mark.slow]


def failure_of(folder: Path) -> Failure:
    failure = scheduler_endings.failure_of(folder)
    assert failure is not None
    return failure


def script(folder: Path) -> Path:
    path = folder / "job.sbatch"
    path.write_text("#!/bin/bash\n#SBATCH --output=/dev/null\nsleep 1000\n")
    return path


def test_a_forgotten_job_is_ended_by_sacct_and_waits_while_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := slurm_cluster.missing() or slurm_accounting.missing():
        pytest.skip(reason)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    sweep = make_sweep(tmp_path / "runs", "sweep", uri, 2)
    folders = [make_run(sweep, config(seed=seed), uri) for seed in (1, 2)]
    try:
        with Cluster(accounting=True) as cluster:
            monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
            for option, words in (("account", "Invalid account"), ("qos", "Invalid qos")):
                given = ClusterConfig(kind="slurm", exclusive=False, **{option: "nobody"})
                with pytest.raises(ConfigError, match=f"Slurm refuses the job: .*{words}"):
                    BatchQueue(1, 10.0).check([config(gpus=0, cluster=given)])
            options = ["--parsable", "--output=/dev/null", f"--chdir={tmp_path}"]
            cancelled, failed = (
                slurm.run(["sbatch", *options, f"--wrap={command}"]).strip() for command in ("sleep 1000", "exit 3")
            )
            for folder, job_id in zip(folders, (cancelled, failed), strict=True):
                (folder / run_folder.RESULT).unlink()
                ticket.write(folder, Ticket("slurm", job_id))
            wait_for(lambda: cluster.state(cancelled) == "RUNNING")
            slurm.cancel([cancelled])
            wait_for(lambda: not slurm._of_queue([cancelled, failed]))
            wait_for(lambda: slurm.states([cancelled])[cancelled].word == "CANCELLED")
            monkeypatch.setattr(scheduler_endings, "_answers", scheduler_endings.Answers())
            assert failure_of(folders[0]).kind == "cancelled"
            assert "it ended as FAILED" in failure_of(folders[1]).message
            assert {outcome.state for outcome in sync([folders[0]])} == {"complete"}  # of its parent, too
            ended = run_folder.read_result(folders[0])
            assert ended is not None
            assert ended.failure is not None
            assert ended.failure.kind == "cancelled"
            # sbatch that was given the cluster says it, and then slurmdbd is asked where that is.
            there = slurm.submit(script(tmp_path), ["--clusters=test"])
            assert there.endswith(";test")
            assert slurm.states([there])[there].active
            slurm.cancel([there])
            wait_for(lambda: not slurm.states([there])[there].active)
            assert cluster.accounting
            cluster.accounting.stop_slurmdbd()
            with pytest.raises(slurm.Away):
                slurm.states([failed])
            monkeypatch.setattr(scheduler_endings, "_answers", scheduler_endings.Answers())
            with pytest.raises(Running, match="Slurm does not answer"):
                failure_of(folders[1])
            cluster.accounting.start_slurmdbd()  # else the controller waits for it when it stops
    except (Unavailable, subprocess.CalledProcessError) as error:
        pytest.skip(f"no accounting runs here: {error}")
