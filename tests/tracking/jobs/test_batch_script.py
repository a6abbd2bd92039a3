"""Each option of a cluster reaches sbatch, and what was not given does not."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from conf.launch_options import ClusterConfig
from conf.schema import ConfigError
from tests.support.studied import config
from tracking.jobs.queues import batch_script

ODD = ["all --wrap=id", "it's", 'a "b"', "#1", "$(id) `id` $HOME", "a\\b", "é ü", "", "a;b&c|d"]


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        ({"partition": "gpu"}, "--partition=gpu"),
        ({"account": "research"}, "--account=research"),
        ({"qos": "high"}, "--qos=high"),
        ({"constraint": "a100&ib"}, "--constraint=a100&ib"),
        ({"time": "4:00:00"}, "--time=4:00:00"),
        ({"mem": "200G"}, "--mem=200G"),
        ({"cpus_per_node": 32}, "--cpus-per-task=32"),
        ({"gpus_option": "--gres=gpu:h100:{gpus}"}, "--gres=gpu:h100:4"),
        ({"exclusive": True}, "--exclusive"),
        ({"lines": ["--mail-type=FAIL"]}, "--mail-type=FAIL"),
        ({"max_requeues": 2, "warn_sec": 60}, "--signal=USR2@60"),
        ({"max_requeues": 2}, "--requeue"),
        ({"max_requeues": 0}, "--no-requeue"),
    ],
)
def test_an_option_of_the_cluster_is_a_line_of_the_script(asked: dict[str, object], option: str) -> None:
    cluster = ClusterConfig(kind="slurm", **{"exclusive": False, **asked})
    own, plain = (script(cluster), script(ClusterConfig(kind="slurm", exclusive=False, max_requeues=1)))
    assert f"#SBATCH {batch_script.quoted([option])}" in own
    if "max_requeues" not in asked or option == "--no-requeue":
        assert f"#SBATCH {option}" not in plain


def test_srun_is_told_of_the_cores_that_sbatch_was_asked_for() -> None:
    """It takes nothing from --cpus-per-task of its job (since Slurm 22.05)."""
    assert "--cpus-per-task=32" in batch_script.srun(config(cluster=ClusterConfig(kind="slurm", cpus_per_node=32)))
    assert not [word for word in batch_script.srun(config(cluster=ClusterConfig(kind="slurm"))) if "cpus" in word]


def script(cluster: ClusterConfig) -> list[str]:
    return batch_script.text(config(gpus=4, cluster=cluster), Path("/runs/run"), "run").splitlines()


@pytest.mark.parametrize("odd", ODD)
def test_a_value_is_a_part_of_one_word_whatever_is_in_it(odd: str) -> None:
    cluster = ClusterConfig(kind="slurm", partition=odd, account=odd, lines=[f"--comment={shlex.quote(odd)}"])
    lines = batch_script.text(config(cluster=cluster), Path("/runs") / f"run {odd}", odd).splitlines()
    words = [word for line in lines if line.startswith("#SBATCH") for word in shlex.split(line)[1:]]
    asked = {f"--{key}={odd}" for key in ("partition", "account", "comment", "job-name")}
    assert asked | {f"--output=/runs/run {odd}/slurm.log"} <= set(words)
    assert len(words) == len(set(words)) == sum(line.startswith("#SBATCH") for line in lines)
    [command] = [shlex.split(line) for line in lines if line.startswith("srun")]
    assert command[-1] == f"/runs/run {odd}"


def test_no_line_can_be_added_to_the_script() -> None:
    for key in ("partition", "gpus_option"):
        cluster = ClusterConfig(kind="slurm", **{key: "x\ntouch /tmp/ran"})
        with pytest.raises(ConfigError, match="holds a control character"):
            batch_script.text(config(gpus=1, cluster=cluster), Path("/runs/run\n"), "run")


@pytest.mark.slow
def test_bash_reads_the_words_that_were_given() -> None:
    """sbatch does, too: tests/launch/test_cluster.py asks a real one."""
    words = ["it's", 'it\'s a \\ $(id) `id` $HOME "x" #1; & !é', *ODD]
    command = f"printf '%s\\n' {batch_script.quoted(words)}"
    assert (
        subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout.splitlines() == words
    )
