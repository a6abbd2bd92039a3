"""The script that sbatch is given for a run: its options, and the supervisor that it starts on every node."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from conf import installation
from conf.launch_options import ClusterConfig
from conf.schema import RunConfig
from tracking.node import AGAIN, ticket

SUPERVISOR = installation.module("trainers.supervisor")


def text(config: RunConfig, folder: Path, name: str) -> str:
    """The script of the run in `folder`, to be called `name` in Slurm's queue."""
    options = "\n".join(f"#SBATCH {option}" for option in sbatch_options(config, folder, name))
    before = "".join(f"{line}\n" for line in config.cluster.before)
    return f"""\
#!/bin/bash
{options}

cd {shlex.quote(str(Path.cwd()))} || exit 1
{before}{shlex.join([*srun(config), *supervisor(folder)])}
code=$?
# The supervisor asks for it: the run was told that its time is nearly over, or that it has to make room.
if [ $code = {AGAIN} ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $code
"""


def sbatch_options(config: RunConfig, folder: Path, name: str) -> list[str]:
    cluster = config.cluster
    options = [
        f"--job-name={shlex.quote(name)}",
        f"--output={shlex.quote(str(folder / ticket.PRINTED))}",
        "--open-mode=append",
        f"--nodes={config.nodes}",
        "--ntasks-per-node=1",
        *(f"--{key}={value}" for key, value in asked_for(cluster).items() if value is not None),
    ]
    options += [cluster.gpus_option.format(gpus=config.num_gpus())] if config.on_gpu() else []
    options += ["--exclusive"] if cluster.exclusive else []
    if cluster.max_requeues:
        options += ["--requeue", f"--signal=USR2@{cluster.warn_sec}"]
    else:
        options += ["--no-requeue"]
    return options + list(cluster.lines)


def asked_for(cluster: ClusterConfig) -> dict[str, str | int | None]:
    """What is passed to sbatch as it is, by its name there."""
    return {
        "partition": cluster.partition, "account": cluster.account, "qos": cluster.qos,
        "constraint": cluster.constraint, "time": cluster.time, "mem": cluster.mem,
        "cpus-per-task": cluster.cpus_per_node,
    }  # fmt: skip


def srun(config: RunConfig) -> list[str]:
    """One task a node. Its nodes end each other, by what they say in the run's folder, so that Slurm need not."""
    options = [f"--nodes={config.nodes}", f"--ntasks={config.nodes}", "--ntasks-per-node=1"]
    if config.cluster.cpus_per_node:
        options.append(f"--cpus-per-task={config.cluster.cpus_per_node}")
    return ["srun", *options, "--cpu-bind=none", "--kill-on-bad-exit=0", "--wait=0"]


# What a node prints that lacks the Python of who submitted the job; it is this run's reason to end.
CHECKED = (
    '[ -x "$1" ] || { echo "node ${SLURMD_NODENAME:-$(uname -n)}: there is no $1, the Python of who submitted it;'
    ' the environment has to lie on a file system that all nodes share"; exit 127; }; exec "$@"'
)


def supervisor(folder: Path) -> list[str]:
    """The command that runs a node's part of the run."""
    code = (
        f"PYTHONPATH={os.pathsep.join(filter(None, [str(installation.SEARCH_FOLDER), os.environ.get('PYTHONPATH')]))}"
    )
    return ["env", code, "bash", "-c", CHECKED, "supervisor", sys.executable, "-P", "-m", SUPERVISOR, str(folder)]
