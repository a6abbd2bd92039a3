"""A program and its processes: the command, the environment, and the end of all processes.

The worker is a subreaper (prctl(2)): orphans of the program, such as daemons, become its children. So it can find and
end all of them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from conf.schema import RunConfig
from tracking.base import installation
from tracking.jobs.program import program_cupti
from tracking.machine.environment import processes
from tracking.request import program_command

PR_SET_PDEATHSIG = 1  # The number is from linux/prctl.h.
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
KIND_SEC = 2.0  # time for a program to end; less than the launcher gives the worker
JOURNAL = ".program.jsonl"  # the file in $TIMETRIAL_JOURNAL; the dot keeps it from MLflow
_spared: set[int] = set()  # the worker's own helper processes
WORKER_VARIABLES = ("TIMETRIAL_LAUNCHER", "PYTHONPATH")


def words(config: RunConfig, run_dir: Path) -> list[str]:
    """The words of the program's command."""
    return program_command.command_words(config.program, values(config, run_dir))


def values(config: RunConfig, run_dir: Path) -> dict[str, object]:
    """The values of the names in braces in a command."""
    return {
        "seed": config.seed,
        "gpus": config.num_gpus(),
        "processes": config.processes_per_node(),
        "batch_size": config.device_batch_size(),
        "lr": config.model.optimizer.lr,
        "max_epochs": config.max_epochs,
        "precision": config.precision.name,
        "run_dir": run_dir.absolute(),
        "stack": config.stack.name,
    }


def command(config: RunConfig, run_dir: Path, python: str | None = None) -> list[str]:
    """The command to start: the program's words, under torchrun if program.launch says so. `python` runs torchrun."""
    program = words(config, run_dir)
    if config.program.launch == "none":
        return program
    ranks = ["--nproc-per-node", str(config.processes_per_node())]
    script = program[1:] if Path(program[0]).name.startswith("python") else ["--no-python", *program]
    torchrun = [python or sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=0"]
    return [*torchrun, *ranks, *script]


def environment(
    config: RunConfig, run_dir: Path, environ: Mapping[str, str], python: str | None = None
) -> dict[str, str]:
    """The program's variables: the worker's without WORKER_VARIABLES, and with the program's GPUs.

    The folder of the stack's Python `python` comes first on the PATH, as in an activated environment.
    """
    variables = {name: value for name, value in environ.items() if name not in WORKER_VARIABLES}
    folders = environ.get("PYTHONPATH", "").split(os.pathsep)
    if user_folders := [folder for folder in folders if folder and folder != str(installation.SEARCH_FOLDER)]:
        variables["PYTHONPATH"] = os.pathsep.join(user_folders)
    if python is not None:
        variables["PATH"] = os.pathsep.join(filter(None, [str(Path(python).parent), environ.get("PATH", "")]))
    visible = [entry for entry in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry]
    count = config.num_gpus()
    variables["CUDA_VISIBLE_DEVICES"] = ",".join((visible or list(map(str, range(count))))[:count])
    variables["TIMETRIAL_JOURNAL"] = str(run_dir.absolute() / JOURNAL)
    if program_cupti.is_traced(config):
        hook = str(program_cupti.folder_of(run_dir))
        variables[program_cupti.VARIABLE] = hook
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [hook, variables.get("PYTHONPATH", "")]))
    if config.program.launch == "torchrun":  # as in our own worker
        threads = max(1, len(os.sched_getaffinity(0)) // config.processes_per_node())
        variables.setdefault("OMP_NUM_THREADS", str(threads))
    return variables


def start(config: RunConfig, run_dir: Path, python: str | None = None) -> subprocess.Popen[bytes]:
    """Start the program; its `stdout` carries all its output. Raises OSError if it cannot be started."""
    libc = ctypes.CDLL(None, use_errno=True)

    def die_with_worker() -> None:
        for number in STOPPING:
            signal.signal(number, signal.SIG_DFL)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    variables = environment(config, run_dir, os.environ, python)
    argv = command(config, run_dir, python)
    return subprocess.Popen(
        argv, env=variables, cwd=config.program.cwd,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=die_with_worker,
    )  # fmt: skip


def executable(word: str, environ: Mapping[str, str], cwd: str | None) -> str | None:
    """The executable that a command's first word names in this environment; None if it is missing."""
    if "/" in word:
        path = (Path(cwd or ".") / word).absolute()
        return str(path) if os.access(path, os.X_OK) else None
    return shutil.which(word, path=environ.get("PATH"))


def spare(pid: int) -> None:
    """Exclude this child of the worker from the program's processes."""
    _spared.add(pid)


def forget(pid: int) -> None:
    """Stop sparing a child that has ended and was reaped: another process may get its number."""
    _spared.discard(pid)


def descendants() -> set[int]:
    """The program's processes that still run."""
    below = processes.descendants(processes.running(), [os.getpid()])
    return {pid for pid in below - {os.getpid(), *_spared} if not processes.has_ended(pid)}


def end_all(patience_sec: float = KIND_SEC) -> int:
    """End all processes of the program, by SIGTERM and then by SIGKILL; returns their number."""
    pids = descendants()
    _signal(pids, signal.SIGTERM)
    deadline = time.monotonic() + patience_sec
    while descendants() and time.monotonic() < deadline:
        time.sleep(0.02)
    for _ in range(100):  # A killed process may just have started another.
        left = descendants()
        if not left:
            break
        _signal(left, signal.SIGKILL)
        time.sleep(0.02)
    return len(pids)


def reap(program_pid: int) -> None:
    """Reap adopted children that have ended, except spared ones. The program is left to `Popen`."""
    for process in processes.running().values():
        if process.parent == os.getpid() and process.pid not in {program_pid, *_spared}:
            with suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
