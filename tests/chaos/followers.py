"""A sweep on a real Slurm whose launcher, or who follows it, is killed again and again: no job is submitted twice."""

from __future__ import annotations

import itertools
import signal
import time

from tests.chaos.case import Case, Kind, Skipped, Started
from tests.chaos.kills import SIGNALS
from tests.chaos.side_by_side import check_once
from tests.support import slurm_cluster
from tests.support.slurm_cluster import Cluster, Unavailable
from tracking.record import run_folder

ON = (
    "cpu_processes=1", "max_epochs=2", "cluster=slurm", "cluster.exclusive=false", "cluster.poll_sec=1",
    "cluster.jobs_at_once=1", "seed=1,2",
)  # fmt: skip


def play(case: Case) -> None:
    if reason := slurm_cluster.missing():
        raise Skipped(reason)
    try:
        with Cluster() as cluster:
            follow(case, cluster)
    except Unavailable as error:
        raise Skipped(str(error)) from None


def follow(case: Case, cluster: Cluster) -> None:
    victim, name = case.variant.split(" ")
    detached = ["detach=true"] if victim == "follower" else []
    launcher = case.real("-m", *ON, *detached, **cluster.env)
    if victim == "launcher":
        strike(case, launcher, name, case.rng.uniform(1, 12))
    launcher.end()
    sweeps = [path.parent for path in case.cwd.glob("runs/*/sweep.json") if (path.parent / run_folder.RUN).exists()]
    for _ in range(case.rng.randint(1, 2) if sweeps and victim == "follower" else 0):
        follower = case.start("follow", "-m", "tracking", "follow", str(sweeps[0]), **cluster.env)
        strike(case, follower, name, case.rng.uniform(1, 8))
        follower.end()
    if sweeps:
        last = case.start("follow", "-m", "tracking", "follow", str(sweeps[0]), **cluster.env)
        code = last.end()
        case.require(code == 0, f"the last follower ended with {code}: {last.output[-3000:]}")
    case.wait_until_gone()
    case.sync()
    case.compare()
    check_once(case, sweeps)
    job_ids = cluster.ask("squeue", "--noheader", "--states=all", "--format=%i").split()
    case.require(len(job_ids) == 2 * len(sweeps), f"jobs were submitted twice: {job_ids}")


def strike(case: Case, started: Started, name: str, after: float) -> None:
    time.sleep(after)
    if started.alive:
        started.process.send_signal(signal.Signals[name])
    case.tell(f"{name} after {after:.1f} s")


VICTIMS = ("launcher", "follower")
FOLLOWER = Kind("kill of who follows", [" ".join(words) for words in itertools.product(VICTIMS, SIGNALS)], play)
