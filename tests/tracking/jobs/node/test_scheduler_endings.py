"""How a run has ended that was killed: by what the kernel counts, by Slurm's word, and by what was printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.studied import config, make_run
from tracking.jobs.node import outcome, scheduler_endings, ticket
from tracking.jobs.node.slurm import JobState
from tracking.jobs.node.ticket import Ticket
from tracking.record import Failure, Result, failures, run_folder

STEP = """\
srun: error: n1: task 0: Out Of Memory
slurmstepd-n1: error: Detected 1 oom-kill event(s) in StepId=7.0. Some of your processes may have been killed.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = make_run(tmp_path / "runs", config(), f"sqlite:///{tmp_path / 'mlflow.db'}")
    (folder / run_folder.RESULT).unlink()
    ticket.write(folder, Ticket("slurm", "7"))
    return folder


@pytest.mark.parametrize(
    ("state", "printed", "kind", "words"),
    [
        (JobState("FAILED", nodes="n1"), STEP, "oom", "Slurm's job 7 on n1: it used more memory than it was given"),
        (JobState("FAILED"), "bash: no module\n", "error", "FAILED and left no result; it last printed: bash"),
        (JobState("OUT_OF_MEMORY", nodes="n1"), "", "oom", "cluster.mem"),
        (JobState("TIMEOUT", nodes="n1"), "", "timeout", "cluster.time"),
        (JobState("NODE_FAIL"), "srun: error: Node failure on n2\n", "node_fail", "a node of it failed: n2"),
        (None, "", "error", "without accounting"),
    ],
)  # fmt: skip
def test_what_slurm_says_becomes_the_runs_failure(
    folder: Path, state: JobState | None, printed: str, kind: str, words: str
) -> None:
    (folder / ticket.PRINTED).write_text(printed)
    scheduler_endings.end(folder, config(), "7", state)
    result = run_folder.read_result(folder)
    assert result is not None
    assert result.failure is not None
    assert result.failure.kind == kind
    assert words in result.failure.message
    assert result.failure.traceback == printed


def test_a_process_that_the_kernel_killed_for_want_of_memory_is_out_of_memory(folder: Path) -> None:
    run_folder.write_result(
        folder, Result("killed", failure=Failure("signal:9", "rank 1 was killed by SIGKILL", rank=1))
    )
    result = outcome.end(folder, failures.short_of_memory(folder, None))
    assert result.status == "failed"
    assert result.failure is not None
    assert (result.failure.kind, result.failure.rank) == ("oom", 1)
    assert "rank 1 was killed by SIGKILL: the kernel had no main memory left" in result.failure.message


@pytest.mark.parametrize("kind", ["error", "signal:15", "nan"])
def test_what_ended_otherwise_stays_what_it_was(folder: Path, kind: str) -> None:
    failure = Failure(kind, "it ended")
    assert failures.short_of_memory(folder, failure) is failure
    assert failures.short_of_memory(folder, None) is None
