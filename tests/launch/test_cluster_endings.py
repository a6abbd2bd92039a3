"""How jobs of a real Slurm end: queued again, preempted, cancelled, without a node of theirs."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from tests.support.cluster_runs import ENDLESS, tags, trains
from tests.support.commands import begin, collect, events
from tests.support.folders import wait_for
from tests.support.slurm_cluster import Cluster
from tracking.record import checkpoints, journal, run_folder
from tracking.store.mirror import Mirror

pytestmark = [pytest.mark.service, pytest.mark.slow]


@pytest.mark.exhaustive
def test_a_requeued_job_goes_on_in_the_same_run_and_a_cancelled_one_says_so(cluster: Cluster, tmp_path: Path) -> None:
    """The controller is away for a while before that, which the launcher says and survives."""
    process = begin(tmp_path, *ENDLESS, "cluster.max_requeues=1", "checkpoint_every_epochs=1", **cluster.env)
    trains(tmp_path, process)
    [folder] = [path.parent for path in tmp_path.glob("runs/*/run.json")]
    job_id = json.loads((folder / "cluster.json").read_text())["job_id"]
    wait_for(lambda: Mirror(folder).run_id)
    run_id = Mirror(folder).run_id
    cluster.stop_controller()
    for _ in range(2):  # the launcher gets no answer meanwhile, which takes it as long as it takes here
        assert not cluster.ask("squeue")
    cluster.start_controller()
    wait_for(lambda: cluster.state(job_id) == "RUNNING")
    cluster.ask("scontrol", "requeue", job_id)
    wait_for(lambda: cluster.state(job_id) == "PENDING")
    # It would wait for two minutes; a node refuses a job that it ended within the same second.
    cluster.ask("scontrol", "update", f"jobid={job_id}", "StartTime=now+3")
    trains(tmp_path, process, attempt=2)
    cluster.ask("scancel", job_id)
    run = collect(process, tmp_path)
    assert run.code == 1
    assert "Slurm does not answer" in run.output
    assert run.result["failure"]["kind"] == "cancelled"
    [resumed] = events(folder, "resume")
    assert resumed.values["epoch_num"] >= 1
    assert resumed.values["after"] == "requeued"
    seen = tags(tmp_path, folder)
    assert Mirror(folder).run_id == run_id
    assert (seen["resumed"], seen["failure"]) == ("1", "cancelled")


@pytest.mark.exhaustive
def test_a_sweep_goes_on_without_a_job_that_was_cancelled_and_its_table_says_which(
    cluster: Cluster, tmp_path: Path
) -> None:
    asked = [word for word in ENDLESS if not word.startswith("max_epochs=")]
    process = begin(tmp_path, "-m", *asked, "max_epochs=100000,1", "cluster.jobs_at_once=1", **cluster.env)
    trains(tmp_path, process)
    [folder] = [path.parent for path in tmp_path.glob("runs/*/*/cluster.json")]
    cluster.ask("scancel", json.loads((folder / "cluster.json").read_text())["job_id"])
    run = collect(process, tmp_path)
    assert run.code == 1, run.output
    failures = {
        path.parent: json.loads(path.read_text()).get("failure") for path in tmp_path.glob("runs/*/*/result.json")
    }
    assert failures.pop(folder)["kind"] == "cancelled"
    assert list(failures.values()) == [None]
    assert "it was cancelled; 1 job left" in run.output
    assert "stopped: cancelled" in run.output


@pytest.mark.exhaustive
def test_a_job_that_makes_room_goes_on_and_one_that_may_not_was_preempted(cluster: Cluster, tmp_path: Path) -> None:
    process = begin(tmp_path, *ENDLESS, "cluster.max_requeues=1", "cluster.partition=all", **cluster.env)
    trains(tmp_path, process)
    [folder] = [path.parent for path in tmp_path.glob("runs/*/run.json")]
    job_id = json.loads((folder / "cluster.json").read_text())["job_id"]
    urgent = ("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true")
    assert cluster.ask(*urgent)
    wait_for(lambda: cluster.state(job_id) == "PENDING")
    wait_for(lambda: cluster.jobs() == [job_id])
    # Slurm itself waits for two minutes: a node refuses a job that it ended within the same second.
    cluster.ask("scontrol", "update", f"jobid={job_id}", "StartTime=now+3")
    trains(tmp_path, process, attempt=2)
    assert cluster.ask(*urgent)
    run = collect(process, tmp_path)
    assert run.result["failure"]["kind"] == "preempted", run.output
    [resumed] = events(folder, "resume")
    place = resumed.values.get("step") or resumed.values["epoch_num"]
    assert place >= 1  # a checkpoint of each epoch, though none was asked for, and one at the warning
    assert f"goes on after {'step' if 'step' in resumed.values else 'epoch'} {place}" in run.output
    keys = [event.key for event in journal.events(folder / run_folder.JOURNAL) if event.key != "throughput_window"]
    assert str(keys[keys.index("resume") - 1]).startswith("checkpoint_"), "it has saved what it had come to"


@pytest.mark.exhaustive  # two minutes of waiting for Slurm; test_step_resume shows the saving
def test_a_warned_job_saves_once_more_and_is_queued_again(cluster: Cluster, tmp_path: Path) -> None:
    """Two nodes; Slurm sends this signal when the time is nearly over, here to every process of the job."""
    asked = ("cluster.max_requeues=1", "checkpoint_every_epochs=10000", "log_every_n_steps=2", "nodes=2")
    process = begin(tmp_path, *ENDLESS, *asked, **cluster.env)
    trains(tmp_path, process)
    [folder] = [path.parent for path in tmp_path.glob("runs/*/run.json")]
    job_id = json.loads((folder / "cluster.json").read_text())["job_id"]
    assert not checkpoints.in_folder(folder)
    cluster.ask("scancel", "--signal=USR2", job_id)
    wait_for(lambda: cluster.state(job_id) == "PENDING")
    (made,) = checkpoints.in_folder(folder)
    stopped = [event for event in events(folder, "checkpoint_stop") if "error" not in event.values]
    assert [event.values.get("step", made.step) for event in stopped] == [made.step]
    cluster.ask("scancel", job_id)
    collect(process, tmp_path)


def kill_stepd(cluster: Cluster, job_id: str) -> None:
    [stepd] = [
        process for process in psutil.process_iter(["cmdline"])
        if f"slurmstepd: [{job_id}.0]" in " ".join(process.info["cmdline"] or []) and of_node(process, "b")
    ]  # fmt: skip
    stepd.kill()


def of_node(stepd: psutil.Process, node: str) -> bool:
    return any(child.environ().get("SLURMD_NODENAME") == node for child in stepd.children())


def kill_node(cluster: Cluster, job_id: str) -> None:
    """Slurm itself would take half a minute to notice."""
    cluster.kill_node("b")
    cluster.ask("scontrol", "update", "nodename=b", "state=down", "reason=killed")


def kill_rank(cluster: Cluster, job_id: str) -> None:
    workers = [process for process in psutil.process_iter() if environ_of(process).get("SLURMD_NODENAME") == "b"]
    ranks = [process for process in workers if not process.children() and "trainers.loop.worker" in process.cmdline()]
    ranks[-1].kill()


def environ_of(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


@pytest.mark.parametrize(
    "kill", [*(pytest.param(part, marks=pytest.mark.exhaustive) for part in (kill_rank, kill_stepd)), kill_node]
)
def test_a_job_that_loses_a_node_fails_with_its_name_and_leaves_no_process(
    cluster: Cluster, tmp_path: Path, kill: object
) -> None:
    process = begin(tmp_path, *ENDLESS, "nodes=2", **cluster.env)
    trains(tmp_path, process)
    [folder] = [path.parent for path in tmp_path.glob("runs/*/run.json")]
    job_id = json.loads((folder / "cluster.json").read_text())["job_id"]
    assert callable(kill)
    kill(cluster, job_id)
    run = collect(process, tmp_path)
    assert run.code == 1, run.output
    failure = run.result["failure"]
    # Slurm ends the job, or the other node is faster.
    assert failure["kind"] in (("signal:9",) if kill is kill_rank else ("node_fail", "error"))
    assert "b" in failure["message"].replace(":", " ").split()
    wait_for(lambda: job_id not in cluster.jobs())
    wait_for(lambda: not [worker for worker in psutil.process_iter() if works_for(worker, folder)])
    if kill is kill_node:
        cluster.start_node("b")


def works_for(process: psutil.Process, folder: Path) -> bool:
    try:
        return str(folder) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
