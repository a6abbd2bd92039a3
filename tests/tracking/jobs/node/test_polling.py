"""A launcher that polls Slurm asks about all its runs in one query."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.studied import config, make_run, make_sweep
from tracking.jobs.node import scheduler_endings, slurm, ticket
from tracking.jobs.node.ticket import Ticket
from tracking.record import Running, run_folder

pytestmark = pytest.mark.slow  # it starts stand-ins for squeue and sacct


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three runs of jobs 1 to 3 that have not ended, and a squeue that says so and notes that it was asked."""
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    sweep = make_sweep(tmp_path / "runs", "sweep", uri, 3)
    folders = [make_run(sweep, config(seed=seed), uri) for seed in (1, 2, 3)]
    for number, folder in enumerate(folders, 1):
        (folder / run_folder.RESULT).unlink()
        ticket.write(folder, Ticket("slurm", str(number)))
    command = tmp_path / "bin/squeue"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\nprintf '1|RUNNING||a\\n2|PENDING|Priority|\\n'\n")
    command.chmod(0o755)
    sacct(tmp_path, "Slurm accounting storage is disabled")
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(scheduler_endings, "_answers", scheduler_endings.Answers())
    return folders


def sacct(tmp_path: Path, words: str) -> None:
    """Make a sacct that fails with these words."""
    command = tmp_path / "bin/sacct"
    command.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
    command.chmod(0o755)


def test_runs_that_lie_together_cost_one_question(runs: list[Path], tmp_path: Path) -> None:
    for _ in range(2):
        for folder, words in zip(runs[:2], ("running on a", "waits in the queue"), strict=True):
            with pytest.raises(Running, match=words):
                scheduler_endings.failure_of(folder)
        failure = scheduler_endings.failure_of(runs[2])
        assert failure is not None
        assert "without accounting" in failure.message
    assert (tmp_path / "asked").read_text().count("asked") == 1


def test_a_controller_that_is_away_is_not_asked_again_for_each_run(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bin/squeue").write_text(
        f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho 'Unable to contact slurm controller' >&2\nexit 1\n"
    )
    for folder in runs:
        with pytest.raises(Running, match="Slurm does not answer"):
            scheduler_endings.failure_of(folder)
    assert (tmp_path / "asked").read_text().count("asked") == 1


@pytest.mark.parametrize("words", ["Problem talking to the database: Connection refused", "Access denied"])
def test_no_ending_is_made_up_while_the_accounting_does_not_answer(
    runs: list[Path], tmp_path: Path, words: str
) -> None:
    sacct(tmp_path, words)
    with pytest.raises(Running, match=words):
        scheduler_endings.failure_of(runs[2])


@pytest.mark.parametrize(
    ("word", "kind"),
    [("TIMEOUT", "timeout"), ("DEADLINE", "timeout"), ("OUT_OF_MEMORY", "oom"), ("NODE_FAIL", "node_fail"),
     ("PREEMPTED", "preempted"), ("CANCELLED", "cancelled"), ("FAILED", "error")],
)  # fmt: skip
def test_each_ending_of_slurms_is_a_kind_of_failure(word: str, kind: str) -> None:
    state = slurm.JobState(word, nodes="n[1-2]")
    assert not state.active
    failure = state.failure("7")
    assert failure.kind == kind
    assert failure.message.startswith("Slurm's job 7 on n[1-2]: ")
