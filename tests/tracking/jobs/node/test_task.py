"""The resources that a cluster gave a node, beside those that the run requested."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.support.studied import config
from tracking.jobs.node import nodes, slurm
from tracking.jobs.node.node_files import NodeState
from tracking.jobs.node.task import Task
from tracking.jobs.queues import batch_script
from tracking.record import Failure, run_folder

OF_SRUN = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2", "SLURMD_NODENAME": "n2",
}  # fmt: skip


def test_what_was_asked_is_enough() -> None:
    Task.of_slurm(OF_SRUN).check(config(nodes=2, gpus=4), num_gpus=4)


@pytest.mark.parametrize(
    ("given", "num_gpus", "words"),
    [
        ({"SLURM_STEP_NUM_TASKS": "1"}, 4, "nodes=2: Slurm's job 7 has 1 tasks"),
        ({"SLURM_STEP_NUM_NODES": "1"}, 4, "nodes=2: Slurm's job 7 has 1 nodes"),
        ({"SLURM_STEP_NUM_TASKS": "3"}, 4, "nodes=2: Slurm's job 7 has 3 tasks"),
        ({}, 3, "gpus=4: 3 visible on node n2. Next: see cluster.gpus_option"),
    ],
)
def test_less_than_was_asked_ends_the_run_with_both_numbers(given: dict[str, str], num_gpus: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Task.of_slurm({**OF_SRUN, **given}).check(config(nodes=2, gpus=4), num_gpus)


def test_who_was_not_started_by_srun_is_told_so() -> None:
    with pytest.raises(ConfigError, match=r"SLURM_PROCID.*srun sets it"):
        Task.of_slurm({name: value for name, value in OF_SRUN.items() if name != "SLURM_PROCID"})


def test_a_node_that_has_fewer_gpus_than_the_others_is_what_they_all_name(tmp_path: Path) -> None:
    asked = config(gpus=2, nodes=2)
    place = tmp_path / "runs/run/.nodes-7-0-0"

    def other() -> None:
        own = json.loads((place / "0.json").read_text())
        message = "gpus=2: 1 visible on node n2. Next: see cluster.gpus_option"
        state = NodeState("n2", own["runs_dir"], own["asked"], beat=1, time_ms=run_folder.now_ms(), ended=True)
        state.failure = dataclasses.asdict(Failure("bad_input", message))
        (place / "1.json").write_text(json.dumps(dataclasses.asdict(state)))

    with pytest.raises(ConfigError, match="1 visible on node n2"), nodes.met(asked, place, "127.0.0.1", other):
        pass


def test_a_job_inherits_nothing_of_the_job_that_submits_it() -> None:
    outer = {"SLURM_NTASKS": "8", "SBATCH_PARTITION": "other", "SLURMD_NODENAME": "n9", "MLFLOW_TRACKING_TOKEN": "t"}
    assert slurm.environment({**outer, "SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin"}) == {
        "SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin",
    }  # fmt: skip


@pytest.mark.slow  # it starts a shell
def test_a_node_without_the_python_of_who_submitted_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "login/node/only/python"))
    ended = subprocess.run(
        batch_script.supervisor(tmp_path), env={**os.environ, "SLURMD_NODENAME": "n2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 127
    assert ended.stdout.startswith(
        f"node n2: {tmp_path}/login/node/only/python, the Python of the submitter, is missing"
    )
