"""The batch script of a run: sbatch's options, and the supervisor that starts on every node."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from conf.launch_options import ClusterConfig
from conf.schema import ConfigError, RunConfig
from tracking.base import installation
from tracking.base.safe_text import breaks_a_line
from tracking.jobs.node import AGAIN, ticket

SUPERVISOR = installation.module("tracking.jobs.node.__main__")
PLAIN = re.compile(r"[\w@%+=:,./-]", re.ASCII)  # characters that neither bash nor sbatch interprets


def quoted(words: Sequence[str]) -> str:
    """A line of the script that bash and sbatch (in #SBATCH) both split into these words.

    Raises ConfigError for a control character, which no line can hold.
    """
    return " ".join(map(quoted_word, words))


def quoted_word(word: str) -> str:
    if control := breaks_a_line(word):
        raise ConfigError(
            f"{word!r}: holds a control character ({control!r}), which a batch script cannot hold. Next: remove it"
        )
    if word and all(map(PLAIN.match, word)):
        return word
    # sbatch splits a word at an escaped space, and interprets a backslash within single quotes.
    if "'" not in word and "\\" not in word:
        return f"'{word}'"
    return '"' + re.sub(r'([\\"$`])', r"\\\1", word) + '"'


def text(config: RunConfig, folder: Path, name: str) -> str:
    """The script of the run in `folder`; `name` is the job's name in Slurm's queue. Raises ConfigError."""
    options = "\n".join(f"#SBATCH {quoted([option])}" for option in sbatch_options(config, folder, name))
    before = "".join(f"{line}\n" for line in config.cluster.before)
    return f"""\
#!/bin/bash
{options}

cd {quoted([str(Path.cwd())])} || exit 1
{before}{quoted([*srun(config), *supervisor(folder)])}
code=$?
# The supervisor asks to be requeued: the run's time is nearly over, or another job needs its nodes.
if [ $code = {AGAIN} ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $code
"""


def sbatch_options(config: RunConfig, folder: Path, name: str) -> list[str]:
    """sbatch's options, unquoted. Raises ConfigError."""
    cluster = config.cluster
    options = [
        f"--job-name={name}",
        f"--output={str(folder / ticket.PRINTED).replace('%', '%%')}",
        "--open-mode=append",
        f"--nodes={config.nodes}",
        "--ntasks-per-node=1",
        *(f"--{key}={value}" for key, value in asked_for(cluster).items() if value is not None),
    ]
    options += words_of("gpus_option", cluster.gpus_option, str(config.num_gpus())) if config.on_gpu() else []
    options += ["--exclusive"] if cluster.exclusive else []
    if cluster.max_requeues:
        options += ["--requeue", f"--signal=USR2@{cluster.warn_sec}"]
    else:
        options += ["--no-requeue"]
    return options + [word for line in cluster.lines for word in words_of("lines", line)]


def words_of(key: str, line: str, gpus: str = "") -> list[str]:
    """The user's line of options, split into words. Raises ConfigError."""
    try:
        return shlex.split(line.replace("{gpus}", gpus) if gpus else line)
    except ValueError as error:
        raise ConfigError(f"cluster.{key}: {line}: {error}. Next: close its quotes") from None


def asked_for(cluster: ClusterConfig) -> dict[str, str | int | None]:
    """Options passed to sbatch unchanged, by their names in sbatch."""
    return {
        "partition": cluster.partition, "account": cluster.account, "qos": cluster.qos,
        "constraint": cluster.constraint, "time": cluster.time, "mem": cluster.mem,
        "cpus-per-task": cluster.cpus_per_node,
    }  # fmt: skip


def srun(config: RunConfig) -> list[str]:
    """The srun command: one task a node. Nodes end each other through the run's folder, so that Slurm need not."""
    options = [f"--nodes={config.nodes}", f"--ntasks={config.nodes}", "--ntasks-per-node=1"]
    if config.cluster.cpus_per_node:
        options.append(f"--cpus-per-task={config.cluster.cpus_per_node}")
    return ["srun", *options, "--cpu-bind=none", "--kill-on-bad-exit=0", "--wait=0"]


# A node prints this if the submitter's Python is missing there. The run's failure quotes the line.
CHECKED = (
    '[ -x "$1" ] || { echo "node ${SLURMD_NODENAME:-$(uname -n)}: $1, the Python of the submitter, is missing.'
    ' Next: put its environment on a file system that all nodes share"; exit 127; }; exec "$@"'
)


def supervisor(folder: Path) -> list[str]:
    """The command that supervises one node's part of the run."""
    code = (
        f"PYTHONPATH={os.pathsep.join(filter(None, [str(installation.SEARCH_FOLDER), os.environ.get('PYTHONPATH')]))}"
    )
    return ["env", code, "bash", "-c", CHECKED, "supervisor", sys.executable, "-P", "-m", SUPERVISOR, str(folder)]
