"""Slurm with several clusters: a job's cluster, which sbatch prints behind its number, is told to every command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracking.jobs.node import slurm, ticket
from tracking.jobs.node.ticket import Ticket
from tracking.record import RunInfo, documents, run_folder

ANSWERS = {
    "sbatch": "echo '4711;gpuc'",
    # Without its cluster, a command asks the local one, which has no such job.
    "squeue": 'case "$*" in *"-M gpuc"*) echo "CLUSTER: gpuc"; echo "4711|RUNNING|None|node01";; esac',
    "sacct": 'case "$*" in *"-M gpuc"*) echo "4712|TIMEOUT|node02";; esac',
    "scancel": "true",
    "scontrol": "true",
}
pytestmark = pytest.mark.slow  # it starts stand-ins of Slurm's commands


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the words of each command that was given."""
    for name, answer in ANSWERS.items():
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/asked\n{answer}\n')
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path / "asked"


def test_a_job_of_another_cluster_is_followed_cancelled_and_requeued_there(asked: Path, tmp_path: Path) -> None:
    job_id = slurm.submit(tmp_path / "job.sbatch")
    assert job_id == "4711;gpuc"
    states = slurm.states([job_id, "4712;gpuc", "9"])
    assert {known: str(state) for known, state in states.items()} == {
        "4711;gpuc": "running on node01", "4712;gpuc": "timeout",
    }  # fmt: skip
    slurm.cancel([job_id, "9"])
    slurm.requeue(job_id)
    lines = asked.read_text().splitlines()
    assert "scancel -M gpuc 4711" in lines
    assert "scancel 9" in lines
    assert "scontrol -M gpuc requeue 4711" in lines
    assert sum(line.startswith("squeue") for line in lines) == 2  # one question to each cluster


def test_nothing_is_cancelled_where_nothing_runs(asked: Path) -> None:
    slurm.cancel([])
    assert not asked.exists()


@pytest.mark.parametrize("job_id", ["--user=victim", "4711 4712", "", "1;-x y", "1,2", "4711\n", "*"])
def test_a_ticket_names_a_job_and_no_option_of_a_command(tmp_path: Path, job_id: str) -> None:
    documents.write_json(tmp_path / run_folder.RUN, RunInfo("run", "tests", "sqlite:///x.db"))
    ticket.write(tmp_path, Ticket("slurm", job_id))
    with pytest.raises(ValueError, match=r"cluster\.json"):
        ticket.read(tmp_path)
    ticket.write(tmp_path, Ticket("slurm", "4711;gpuc"))
    assert ticket.read(tmp_path) is not None
