"""Runs in Slurm's queue: what is submitted when an answer is lost, and what a refusal means."""

from __future__ import annotations

import io
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from conf.launch_options import ClusterConfig
from conf.schema import ConfigError, RunConfig
from tests.support.studied import config, make_run
from tracking.jobs.node import JobState, Ticket, scheduler_endings, signals, slurm, ticket
from tracking.jobs.plan import Job, own_folder
from tracking.jobs.queues import following
from tracking.jobs.queues.following import Following
from tracking.jobs.queues.queue import Queue
from tracking.jobs.queues.slurm_queues import BatchQueue
from tracking.record import Checkpoint, run_folder, run_lock

ASKED = config(gpus=0, cluster=ClusterConfig(kind="slurm"))


class FakeSlurm:
    """Has the jobs that sbatch was given; its first `lost` answers do not arrive."""

    def __init__(self, lost: int = 0) -> None:
        self.lost = lost
        self.scripts: dict[int, str] = {}
        self.cluster = "alpha"
        self.commands: list[Sequence[str]] = []

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        self.commands.append(command)
        if command[0] == "scontrol":
            return f"ClusterName             = {self.cluster}\nCommunicationParameters = (null)\n"
        if command[0] == "squeue":  # Slurm's own order is not that of the ids.
            return "".join(f"{number}|{script}\n" for number, script in sorted(self.scripts.items(), reverse=True))
        if command[0] != "sbatch":
            return ""
        self.scripts[99 + len(self.scripts)] = command[-1]
        self.lost -= 1
        if self.lost >= 0:
            raise slurm.Away("Socket timed out on send/recv operation")
        return f"{max(self.scripts)}\n"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    made = FakeSlurm()
    monkeypatch.setattr(slurm, "run", made.run)
    monkeypatch.setattr(ticket, "_local", ticket._LocalCluster())
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


def test_a_job_of_another_cluster_is_not_taken_for_one_of_this_with_its_number(
    fake: FakeSlurm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clusters that share a file system number their jobs independently."""
    submit(folder)
    made = ticket.read(folder)
    assert made is not None
    assert (made.job_id, made.cluster, made.asked) == ("99", "alpha", "99")
    fake.cluster = "beta"
    monkeypatch.setattr(ticket, "_local", ticket._LocalCluster())
    ticket.check_own(folder, made)
    assert scheduler_endings.job_of(folder) == "99;alpha"
    queue = BatchQueue(50, 10.0)
    queue.cancel([made], signal.SIGTERM)
    assert fake.commands[-1] == ["scancel", "-M", "alpha", "99"]
    fake.commands.clear()
    queue.states([made])
    assert {tuple(command[1:3]) for command in fake.commands} == {("-M", "alpha")}
    with pytest.raises(ConfigError, match="was not written by you"):
        ticket.check_own(folder, replace(made, cluster="beta"))


def test_slurm_is_asked_for_its_name_once(fake: FakeSlurm) -> None:
    assert [ticket.local_cluster() for _ in range(3)] == ["alpha"] * 3
    assert len(fake.commands) == 1
    assert Ticket("slurm", "7;gpuc", cluster="beta").asked == "7;gpuc"
    assert Ticket("slurm", "7").asked == "7", "of a version that did not note it"


@pytest.mark.parametrize("cluster", ["a b", "a,b", "a\n"])
def test_a_ticket_names_a_cluster_and_no_option(folder: Path, cluster: str) -> None:
    ticket.write(folder, Ticket("slurm", "7", cluster=cluster))
    with pytest.raises(ValueError, match="not the name of a cluster"):
        ticket.read(folder)


def test_a_resumed_run_is_submitted_although_slurm_knows_its_earlier_job(fake: FakeSlurm, folder: Path) -> None:
    assert submit(folder) == "99"
    fake.lost = 1
    with pytest.raises(slurm.Away):
        submit(folder)
    assert submit(folder) == "100"
    assert len(fake.scripts) == 2


POLICY = (
    "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
)


@pytest.mark.parametrize(
    ("words", "passes"),
    [
        (f"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: {POLICY}", True),
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: {POLICY}", True),
        (f"sbatch: error: {POLICY}", True),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: {POLICY}", False),
        ("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", True),
        ("sbatch: error: Batch job submission failed: Protocol authentication error", True),
        ("sbatch: error: Batch job submission failed: Slurm backup controller in standby mode", True),
        ("sbatch: error: Batch job submission failed: I/O error writing script/environment to file", True),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", True),
        ("sbatch: error: invalid partition specified: gpuu", False),
    ],
)  # fmt: skip
def test_a_limit_of_submitted_jobs_and_a_passing_fault_are_no_refusal(
    monkeypatch: pytest.MonkeyPatch, words: str, passes: bool
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", words))
    with pytest.raises(slurm.Away if passes else ConfigError, match=words.split()[-1].rstrip("()")):
        slurm.run(["sbatch"])


class FakeQueue(Queue):
    """Refuses what `failures` says, one after the other, and then does it."""

    at_once, outlives, poll_sec, settling_sec = 1, True, 0.0, -1.0

    def __init__(self, failures: Sequence[BaseException]) -> None:
        self.failures = list(failures)
        self.asked = 0
        self.cancelled = False

    def check(self, configs: Sequence[RunConfig]) -> None:
        return

    def _do(self) -> None:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)

    def submit(self, owner: run_lock.Owner, config: RunConfig, name: str, started: float, after: str = "") -> Ticket:
        self._do()
        return ticket.issue(owner.folder, Ticket("slurm", "7"))

    def states(self, tickets: Sequence[Ticket]) -> dict[str, JobState]:
        return {"7": JobState("CANCELLED" if self.cancelled else "RUNNING")}

    def cancel(self, tickets: Sequence[Ticket], signum: int) -> None:
        self._do()
        self.cancelled = True


def follow(queue: FakeQueue, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Following, Job, Console]:
    (folder / run_folder.RESULT).unlink()
    for name in ("raise_on_signals", "ignore_further"):
        monkeypatch.setattr(signals, name, lambda: None)
    monkeypatch.setattr(following, "POLL_SEC", 0.0)
    uploads: Any = SimpleNamespace(start=lambda _: None, ended=lambda _: None)
    console = Console(file=io.StringIO(), width=1000)
    return Following(queue, uploads, console, lambda _: run_lock.take(folder), 2, 0.0), Job(ASKED, []), console


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_job_that_slurm_does_not_take_now_is_submitted_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = FakeQueue([slurm.Away("AssocMaxSubmitJobLimit")] * 2)
    follower, job, console = follow(queue, folder, monkeypatch)
    queue.poll_sec = 1000.0
    assert not follower.submit(job)
    assert not follower._has_room(job)  # until the next query
    with pytest.raises(ConfigError, match=r"AssocMaxSubmitJobLimit\. Next: give the command again"):
        follower.detach([job])
    assert follower.submit(job)
    assert job.result is None
    assert printed(console).count("now: AssocMaxSubmitJobLimit; trying again") == 1


def test_a_cancellation_that_failed_is_asked_for_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = FakeQueue([])
    follower, job, console = follow(queue, folder, monkeypatch)
    follower.submit(job)
    queue.failures = [slurm.Away("Socket timed out")] * 2
    follower.cancel(signals.Interrupted(signal.SIGINT))
    assert queue.asked == 1 + 3
    assert job.result is not None
    assert job.result.failure is not None
    assert job.result.failure.kind == "cancelled"
    assert printed(console).count("the jobs could not be cancelled: Socket timed out; trying again") == 1


def test_a_further_signal_leaves_jobs_that_cannot_be_cancelled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = FakeQueue([])
    follower, job, _ = follow(queue, folder, monkeypatch)
    follower.submit(job)
    queue.failures = [slurm.Away("away"), signals.Interrupted(signal.SIGINT), slurm.Away("away")]
    follower.cancel(signals.Interrupted(signal.SIGINT))
    assert [followed.ticket.job_id for followed in follower.running] == ["7"]


def test_a_cluster_that_does_not_answer_leaves_no_job_of_another_uncancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run(command: Sequence[str]) -> str:
        asked.append(command[-1])
        raise slurm.Away("away")

    monkeypatch.setattr(slurm, "run", run)
    with pytest.raises(slurm.Away):
        slurm.cancel(["1;a", "2;b", "3"])
    assert asked == ["1", "2", "3"]


@pytest.mark.parametrize("kind", ["none", "slurm"])
def test_a_run_that_goes_on_elsewhere_is_no_longer_slurms(fake: FakeSlurm, folder: Path, kind: str) -> None:
    submit(folder)
    checkpoint = Checkpoint(folder / "checkpoints/epoch=0001.ckpt", 1)
    job = Job(config(gpus=0, cluster=ClusterConfig(kind=kind)), [], checkpoint=checkpoint)
    own_folder(job, folder.parent, None, "", lambda _: None).release()
    assert {(folder / name).exists() for name in (ticket.FILE, ticket.SCRIPT)} == {kind == "slurm"}
