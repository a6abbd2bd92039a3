"""Runs in Slurm's queue: what is submitted when an answer is lost, and what a refusal means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from conf.launch_options import ClusterConfig
from tests.support.studied import config, make_run
from tracking.jobs.node import slurm, ticket
from tracking.jobs.queues.slurm_queues import BatchQueue
from tracking.record import run_lock

ASKED = config(gpus=0, cluster=ClusterConfig(kind="slurm"))


class FakeSlurm:
    """Has the jobs that sbatch was given; its first `lost` answers do not arrive."""

    def __init__(self, lost: int = 0) -> None:
        self.lost = lost
        self.scripts: dict[int, str] = {}

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        if command[0] == "squeue":  # Slurm's own order is not that of the ids.
            return "".join(f"{number}|{script}\n" for number, script in sorted(self.scripts.items(), reverse=True))
        assert command[0] == "sbatch"
        self.scripts[99 + len(self.scripts)] = command[-1]
        self.lost -= 1
        if self.lost >= 0:
            raise slurm.Away("Socket timed out on send/recv operation")
        return f"{max(self.scripts)}\n"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    made = FakeSlurm()
    monkeypatch.setattr(slurm, "run", made.run)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path / "runs", config(), f"sqlite:///{tmp_path / 'mlflow.db'}")


def submit(folder: Path) -> str:
    with run_lock.take(folder) as owner:
        return BatchQueue(50, 10.0).submit(owner, ASKED, "run", 0.0).job_id


def test_a_job_whose_answer_was_lost_is_found_and_not_submitted_again(fake: FakeSlurm, folder: Path) -> None:
    fake.lost = 1
    with pytest.raises(slurm.Away):
        submit(folder)
    assert submit(folder) == "99"
    made = ticket.read(folder)
    assert made is not None
    assert made.job_id == "99"
    assert len(fake.scripts) == 1


def test_a_resumed_run_is_submitted_although_slurm_knows_its_earlier_job(fake: FakeSlurm, folder: Path) -> None:
    assert submit(folder) == "99"
    fake.lost = 1
    with pytest.raises(slurm.Away):
        submit(folder)
    assert submit(folder) == "100"
    assert len(fake.scripts) == 2
