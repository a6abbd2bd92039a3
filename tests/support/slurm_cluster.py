"""A Slurm cluster of two nodes on this host, on loopback: munge, a controller and two slurmd, without cgroups."""

from __future__ import annotations

import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.afterwards import even_if_killed
from tests.support.folders import wait_for
from tests.support.slurm_accounting import Accounting

NODES = ("a", "b")
START_SEC = 300.0  # A cluster starts in that time, however busy the machine is.
COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
{accounting}JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=all Nodes=a,b Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=a,b MaxTime=INFINITE State=UP PriorityTier=10
"""
# Ends a cluster whose test was killed: its jobs, its daemons, and its folder.
END = """
export SLURM_CONF="$0/slurm.conf"
timeout 30 scancel --full --user=root && sleep 6
kill $(cat "$0"/*.pid "$0"/database/*.pid)
sleep 1 && rm -r "$0"
"""


def missing() -> str:
    """Why no cluster can be had here; empty where it can."""
    absent = [command for command in COMMANDS if not shutil.which(command, path=f"{os.environ['PATH']}:/usr/sbin")]
    if absent:
        return f"there is no {', '.join(absent)} (Debian: slurm-wlm, munge)"
    return "" if os.geteuid() == 0 else "slurmd starts jobs of others, for which it has to be root"


class Unavailable(Exception):
    """Slurm is installed, and does not run here."""


class Cluster:
    """Runs from `with` on; `env` is what a command of Slurm's needs to speak to it.

    With `accounting` there is a slurmdbd, and Slurm's controller forgets a job two seconds after its end. Slurm takes
    each node for one of `cpus`, however many there are.
    """

    def __init__(self, accounting: bool = False, cpus: int = 2) -> None:
        self._cpus = cpus
        self.accounting: Accounting | None = None
        self._accounted = accounting
        self._stack = ExitStack()
        self._folder = Path()
        self.env: dict[str, str] = {}

    def __enter__(self) -> Cluster:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        self._folder.chmod(0o755)
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self._folder / name).mkdir()
        own, *ports = free_ports(1 + len(NODES))
        if self._accounted:
            self.accounting = Accounting(self._folder, platform.node(), *free_ports(2))
        accounting = "AccountingStorageType=accounting_storage/none\n"
        if self.accounting:
            accounting = f"{self.accounting.config}MinJobAge=2\n"
        host = platform.node()
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={self._cpus}"
            for node, port in zip(NODES, ports, strict=True)
        )
        config = self._folder / "slurm.conf"
        config.write_text(CONFIG.format(host=host, port=own, folder=self._folder, nodes=nodes, accounting=accounting))
        self.env = {"SLURM_CONF": str(config)}
        self._stack.enter_context(even_if_killed("sh", "-c", END, str(self._folder)))
        self._stack.callback(self.stop)
        try:
            self._start_munge()
            if self.accounting:
                self.accounting.start()
                wait_for(lambda: self.ask("sacctmgr", "--immediate", "add", "cluster", "test"))
            self.start_controller()
            for node in NODES:
                self.start_node(node)
            self._wait_for_nodes()
        except (subprocess.CalledProcessError, Unavailable) as error:
            logs = "".join(path.read_text(errors="replace")[-500:] for path in self._folder.glob("*.log"))
            self._stack.close()
            words = getattr(error, "stderr", b"") or str(error).encode()
            raise Unavailable(f"Slurm does not run here: {words.decode(errors='replace')} {logs}") from None
        return self

    def _wait_for_nodes(self) -> None:
        deadline = time.monotonic() + START_SEC
        while (seen := self.ask("sinfo", "--noheader", "--format=%D %T").split()) != [str(len(NODES)), "idle"]:
            if time.monotonic() > deadline:
                raise Unavailable(f"after {START_SEC:g} s sinfo says: {' '.join(seen)}")
            time.sleep(0.2)

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start_munge(self) -> None:
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid", "log-file": "munged.log"}
        options = [f"--{option}={self._folder / name}" for option, name in {**files, "seed-file": "seed"}.items()]
        subprocess.run([daemon("munged"), "--force", *options], check=True, capture_output=True)

    def start_controller(self) -> None:
        subprocess.run([daemon("slurmctld"), "-f", self.env["SLURM_CONF"]], check=True, capture_output=True)

    def stop_controller(self) -> None:
        process = self._process("slurmctld.pid")
        process.terminate()
        process.wait(60)

    def start_node(self, node: str) -> None:
        subprocess.run([daemon("slurmd"), "-N", node, "-f", self.env["SLURM_CONF"]], check=True, capture_output=True)

    def kill_node(self, node: str) -> None:
        """End a node as a power cut does, with all that it runs."""
        spooled = str(self._folder / f"spool-{node}")
        steps = [process for process in psutil.process_iter(["cmdline"]) if stepd_of(process, node, spooled)]
        for process in [self._process(f"slurmd-{node}.pid"), *steps]:
            for child in (*process.children(recursive=True), process):
                with suppress(psutil.Error):
                    child.send_signal(signal.SIGKILL)

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands prints; empty where it fails."""
        ended = subprocess.run(command, env={**os.environ, **self.env}, capture_output=True, text=True, check=False)
        return ended.stdout if ended.returncode == 0 else ""

    def state(self, job_id: str) -> str:
        facts = dict(
            word.split("=", 1) for word in self.ask("scontrol", "-o", "show", "job", job_id).split() if "=" in word
        )
        return facts.get("JobState", "")

    def jobs(self) -> list[str]:
        """The ids of all jobs that have not ended."""
        return self.ask("squeue", "--noheader", "--format=%i").split()

    def stop(self) -> None:
        if jobs := self.jobs():
            self.ask("scancel", *jobs)
            wait_for(lambda: not self.jobs())
        for name in (*(f"slurmd-{node}.pid" for node in NODES), "slurmctld.pid", "munged.pid"):
            with suppress(OSError, psutil.Error, ValueError):
                process = self._process(name)
                process.terminate()
                process.wait(30)
        if self.accounting:
            self.accounting.stop()

    def _process(self, pid_file: str) -> psutil.Process:
        return psutil.Process(int((self._folder / pid_file).read_text()))


def running() -> Iterator[Cluster]:
    """The cluster of a fixture; skips the test if no cluster can be started."""
    if reason := missing():
        pytest.skip(reason)
    with ExitStack() as stack:
        try:
            made = stack.enter_context(Cluster())
        except Unavailable as error:
            pytest.skip(str(error))
        yield made


def stepd_of(process: psutil.Process, node: str, spooled: str) -> bool:
    """Whether it is a slurmstepd of a node: a child of its slurmd, that has let go of it."""
    if "slurmstepd" not in " ".join(process.info["cmdline"] or []):
        return False
    with suppress(psutil.Error):
        return (
            any(spooled in file.path for file in process.open_files())
            or process.environ().get("SLURMD_NODENAME") == node
        )
    return False


def daemon(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert path
    return path


def free_ports(number: int) -> list[int]:
    """Free TCP ports that no outgoing connection is given: the kernel gives those above 32,767 (Linux' default)."""
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        while len(sockets) < number:
            candidate = stack.enter_context(socket.socket())
            with suppress(OSError):
                candidate.bind(("127.0.0.1", random.SystemRandom().randint(20_000, 32_000)))
                sockets.append(candidate)
        return [int(bound.getsockname()[1]) for bound in sockets]


def main() -> None:
    """Keep a cluster until Ctrl-C, to try things on."""
    if reason := missing():
        raise SystemExit(reason)
    with Cluster() as cluster, suppress(KeyboardInterrupt):
        print(f"SLURM_CONF={cluster.env['SLURM_CONF']}\n{cluster.ask('sinfo')}Ctrl-C ends it.", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
