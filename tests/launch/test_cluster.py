"""Runs on a real Slurm cluster of two nodes, which are this host twice."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from conf.launch_options import ClusterConfig
from tests.support import studied
from tests.support.cluster_runs import SHORT, journal_of, of_program, tags, tracking
from tests.support.commands import HANGS_SEC, ROOT, TINY, environment, launch, launched
from tests.support.folders import wait_for
from tests.support.in_process import answer
from tests.support.slurm_cluster import Cluster
from tracking.jobs.queues import batch_script
from tracking.record import journal, run_folder
from tracking.store.mirror import Mirror

pytestmark = [pytest.mark.service, pytest.mark.slow]


def test_a_run_on_two_nodes_is_in_mlflow_with_both(cluster: Cluster, tmp_path: Path) -> None:
    run = launch(tmp_path, *SHORT, "nodes=2", "cluster.mirror=node", 'cluster.lines=["--comment=ours"]', **cluster.env)
    assert run.code == 0, run.output
    wait_for(lambda: Mirror(run.folder).complete)  # from the first node, which may be at it yet
    assert "not uploaded" not in run.output
    assert run.result["metrics"]["world_size"] == 2
    assert {row["node"] for row in run.result["nodes"]} == {"a", "b"}
    assert all(row["step_ms"] > 0 for row in run.result["nodes"])
    seen = tags(tmp_path, run.folder)
    assert seen["env.nodes"] == "a,b"
    assert seen["cluster.job_id"] == json.loads((run.folder / "cluster.json").read_text())["job_id"]
    assert f"job {seen['cluster.job_id']}" in run.output
    assert Mirror(run.folder).complete
    script = (run.folder / "job.sbatch").read_text()
    assert "#SBATCH --nodes=2\n" in script
    assert "#SBATCH --comment=ours\n" in script
    assert "srun --nodes=2" in script
    wait_for(lambda: not list(run.folder.glob(".nodes*")))  # the first node takes it away last


def test_jobs_go_on_without_a_launcher_and_are_followed_by_another(cluster: Cluster, tmp_path: Path) -> None:
    """Detached, followed, that follower killed, and followed again; a second one at the same time is refused."""
    asked = (*of_program(tmp_path), "seed=1,2", "cluster.jobs_at_once=1", "detach=true")
    run = launch(tmp_path, "-m", *asked, **cluster.env)
    assert run.code == 0, run.output
    [sweep] = [path.parent for path in tmp_path.glob("runs/*/sweep.json")]
    assert f"tracking follow {sweep.relative_to(tmp_path)}" in run.output
    assert len(run.folders) == 2  # one runs, and the other waits for it
    first = tracking(tmp_path, "follow", str(sweep), **cluster.env)
    wait_for(lambda: "eval_accuracy" in journal_of(tmp_path) or first.poll() is not None)
    second = tracking(tmp_path, "follow", str(sweep), **cluster.env)
    words, _ = second.communicate(timeout=HANGS_SEC)
    assert second.returncode == 2, words
    assert f"process {first.pid}" in words
    first.kill()
    first.communicate()
    (tmp_path / "go").touch()
    again = tracking(tmp_path, "follow", str(sweep), **cluster.env)
    words, _ = again.communicate(timeout=HANGS_SEC)
    assert again.returncode == 0, words
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    for folder in run.folders:
        mirror = Mirror(folder)
        assert mirror.complete, words
        assert mirror.run_id
        rows = [record for record, _ in journal.read(folder / run_folder.JOURNAL) if "eval/accuracy" in record.values]
        assert len(client.get_metric_history(mirror.run_id, "eval/accuracy")) == len(rows) == 20
    assert json.loads((sweep / "result.json").read_text())["status"] == "finished"


def test_an_allocation_is_used_at_once_and_what_it_has_not_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    here = [sys.executable, str(ROOT / "launch.py"), *TINY, "gpus=0", "cluster=here", "max_epochs=1"]
    here += ["tracking.system_metrics_interval_sec=0", "tracking.offline=true"]
    command = f"{' '.join(here)} nodes=3; echo code $?; {' '.join(here)} nodes=2"
    ended = subprocess.run(
        ["salloc", "-N2", "--ntasks-per-node=1", "bash", "-c", command], cwd=tmp_path, env=environment(**cluster.env),
        capture_output=True, text=True, timeout=HANGS_SEC, check=False,
    )  # fmt: skip
    run = launched(ended.returncode, ended.stdout + ended.stderr, tmp_path)
    assert run.code == 0, run.output
    assert "nodes=3: the allocation" in run.output
    assert "code 2" in run.output
    assert run.result["metrics"]["world_size"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cluster.partition=nowhere"], "invalid partition"),
        (["nodes=3"], "cluster=slurm: Slurm refuses the job"),
        (["cluster.constraint=nowhere"], "Invalid feature specification"),
        (["cluster.mem=999T"], "Requested node configuration is not available"),
        (["cluster.cpus_per_node=99"], "Requested node configuration is not available"),
        (["gpus=2", 'cluster.gpus_option="--gres=gpu:{gpus}"'], "Invalid generic resource"),
        (["gpus=auto"], "gpus=auto"),
        (["nodes=2", "rendezvous=10.0.0.1:29500"], "rendezvous=10.0.0.1:29500"),
        (["cluster=here"], "cluster=here: no Slurm allocation found"),
        (["cluster=here", "detach=true"], "detach=true"),
        (["cluster=none", "detach=true"], "detach=true"),
        (["cluster.time=soon"], "cluster.time=soon"),
        (["cluster.time=1", "cluster.max_requeues=1"], "cluster.warn_sec=90"),
        (['cluster.lines=["ntasks=3"]'], "cluster.lines"),
        (["cluster.mirror=nobody"], "cluster.mirror=nobody"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused(
    cluster: Cluster, tmp_path: Path, arguments: list[str], words: str
) -> None:
    given = [argument for argument in SHORT if argument.split("=")[0] not in {a.split("=")[0] for a in arguments}]
    refused = answer(tmp_path, *given, *arguments, **cluster.env)
    assert refused.code == 2, refused.output
    assert words in refused.output
    assert not refused.folders


def test_without_slurm_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").symlink_to(shutil.which("git") or "/bin/false")
    refused = answer(tmp_path, *SHORT, PATH=str(tmp_path / "bin"))
    assert refused.code == 2, refused.output
    assert "sbatch is not on the PATH" in refused.output


def test_slurm_reads_every_word_of_the_script_as_it_was_given(cluster: Cluster, tmp_path: Path) -> None:
    """An attacker's partition or job's name is one word, whatever is in it; so is the folder that bash goes to."""
    odd = f'it\'s --hold=no #\\\\ "$(touch {tmp_path}/ran)" `id`; & é'
    lines = [f"--comment={shlex.quote(odd)}", "--hold", "-p all"]
    asked = studied.config(gpus=0, cluster=ClusterConfig(kind="slurm", exclusive=False, lines=lines))
    folder = tmp_path / "50% of #1"
    folder.mkdir()
    (tmp_path / "job.sbatch").write_text(batch_script.text(asked, folder, odd))
    job_id = cluster.ask("sbatch", "--parsable", str(tmp_path / "job.sbatch")).strip()
    shown = cluster.ask("squeue", "--noheader", f"--jobs={job_id}", "--format=%k|%P|%j|%T")
    assert shown.strip() == f"{odd}|all|{odd}|PENDING"
    cluster.ask("scontrol", "release", job_id)
    wait_for(lambda: job_id not in cluster.jobs())
    assert (folder / "slurm.log").exists()
    refused = answer(tmp_path, *SHORT, "cluster.partition='all --wrap=id'", **cluster.env)
    assert "invalid partition specified: all --wrap=id" in refused.output
    assert not (tmp_path / "ran").exists()


def test_the_script_is_shown_before_anything_is_submitted(cluster: Cluster, tmp_path: Path) -> None:
    shown = answer(tmp_path, *SHORT, "dry_run=true", "cluster.time=10", "cluster.before=[echo before]", **cluster.env)
    assert shown.code == 0, shown.output
    for line in ("#SBATCH --time=10", "#SBATCH --no-requeue", "echo before", "nothing was submitted"):
        assert line in shown.output
    assert not shown.folders
