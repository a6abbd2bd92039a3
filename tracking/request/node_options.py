"""Refuses what machines, their GPUs or a cluster cannot be told to do, before any of them waits for another."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Protocol

from conf.launch_options import KINDS, MIRRORS, ClusterConfig
from conf.schema import ConfigError, RunConfig

TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)|(\d+)")  # days, hours, minutes, seconds; or minutes alone
SHARED = "sweep.jobs_at_once="  # how the tag `neighbours` of a run begins that had other jobs of its sweep beside it
THREADS_A_JOB = 2  # a core, at least
ADDRESS = re.compile(r"(?P<host>[^:\s/]+):(?P<port>\d{1,5})")


class VisibleGpu(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def compute_capability(self) -> float | None: ...


def address(rendezvous: str) -> tuple[str, int]:
    """Host and port of HOST:PORT. Raises ConfigError."""
    match = ADDRESS.fullmatch(rendezvous)
    if not match or not 1024 <= int(match["port"]) < 65536:
        raise ConfigError(
            f"rendezvous={rendezvous}: give HOST:PORT, the address of the node of node_rank=0 as the others reach it,"
            " and a port from 1024 to 65535 that is free there"
        )
    return match["host"], int(match["port"])


def resolve_gpus(
    asked: Any, gpus: Sequence[VisibleGpu], cpu_processes: int, elsewhere: bool = False
) -> int | list[int]:
    """The number of GPUs of a node, or the indices of those that were asked for. Those of a cluster's nodes
    (`elsewhere`) are counted where the run starts."""
    if elsewhere:
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0:
            raise ConfigError(f"gpus={asked}: what a cluster's nodes have is not known here; give a number, 0 for CPUs")
        return asked
    if asked == "auto":
        return min(1, len(gpus)) if cpu_processes == 1 else 0
    there = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus) or "none"
    seen = f"{len(gpus)} visible on this machine ({there})"
    show = "(nvidia-smi and CUDA_VISIBLE_DEVICES show what is there)"
    if isinstance(asked, list):
        words = f"gpus=[{','.join(map(str, asked))}]"
        if not asked or len(set(map(str, asked))) < len(asked):
            raise ConfigError(f"{words}: names no GPU, or one twice; give each index once, as in gpus=[0,1]; {seen}")
        if unknown := [index for index in asked if str(index) not in {str(gpu.index) for gpu in gpus}]:
            raise ConfigError(f"{words}: there is no GPU {unknown[0]} here: {seen}; give indices of those {show}")
        return [int(index) for index in asked]
    allowed = f"auto, 0 for the CPU, or up to {len(gpus)}" if gpus else "auto, or 0 for the CPU"
    if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0 or asked > len(gpus):
        raise ConfigError(f"gpus={asked}: {seen}; give {allowed} {show}")
    return asked


def resolve_at_once(config: RunConfig, overrides: Sequence[str], gpus: Sequence[VisibleGpu]) -> int:
    """How many jobs run at once on this machine: as told, else of a search one a GPU, where each has a core."""
    told = any(word.startswith("sweep.jobs_at_once=") for word in overrides)
    here = config.cluster.kind == "none" and config.nodes == 1 and not isinstance(config.gpus, list)
    if told or not (config.search.name and here and config.on_gpu()):
        return config.sweep.jobs_at_once
    return len(gpus) if len(os.sched_getaffinity(0)) >= THREADS_A_JOB * len(gpus) else 1


def jobs_on_the_same_machine(config: RunConfig) -> str:
    """What the tag `neighbours` says of the jobs that are to run beside this one; empty for none."""
    return f"{SHARED}{config.sweep.jobs_at_once}" if config.sweep.jobs_at_once > 1 else ""


def check_nodes(config: RunConfig) -> None:
    """Raise ConfigError where nodes, node_rank, rendezvous and cluster do not go together."""
    if config.nodes < 1:
        raise ConfigError(f"nodes={config.nodes}: must be above 0")
    if config.cluster.kind != "none":
        check_cluster(config)
        return
    if config.detach:
        raise ConfigError("detach=true: has no effect without cluster=slurm; leave it out, or give cluster=slurm")
    if not 0 <= config.node_rank < config.nodes:
        raise ConfigError(
            f"node_rank={config.node_rank}: with nodes={config.nodes}, allowed: 0 to {config.nodes - 1}, one for each"
        )
    if config.rendezvous_timeout_sec <= 0:
        raise ConfigError(f"rendezvous_timeout_sec={config.rendezvous_timeout_sec:g}: must be above 0")
    if config.nodes == 1:
        if config.rendezvous is not None:
            raise ConfigError(f"rendezvous={config.rendezvous}: has no effect with nodes=1; give nodes=2, or leave it")
        return
    if config.rendezvous is None:
        raise ConfigError(
            f"nodes={config.nodes}: the machines have to find each other; give cluster=slurm, or rendezvous=HOST:PORT"
            " and on each machine its node_rank; on one machine give nodes=1"
        )
    address(config.rendezvous)


def check_cluster(config: RunConfig) -> None:
    """Raise ConfigError for what the scheduler could not be told, or decides itself."""
    cluster = config.cluster
    given = f"cluster={cluster.name}"
    if config.rendezvous is not None or config.node_rank:
        key = f"rendezvous={config.rendezvous}" if config.rendezvous else f"node_rank={config.node_rank}"
        raise ConfigError(f"{key}: {given} starts the nodes, which find each other; leave it out")
    if cluster.kind not in KINDS:
        raise ConfigError(f"cluster.kind={cluster.kind}: allowed: {', '.join(KINDS)}")
    if cluster.mirror not in MIRRORS:
        raise ConfigError(f"cluster.mirror={cluster.mirror}: allowed: {', '.join(MIRRORS)}")
    if config.detach and cluster.kind != "slurm":
        raise ConfigError(f"detach=true: has no effect with {given}, whose nodes end with their launcher; leave it out")
    for key, lowest in (
        ("jobs_at_once", 1),
        ("max_requeues", 0),
        ("warn_sec", 1),
        ("poll_sec", 1),
        ("cpus_per_node", 1),
    ):
        value = getattr(cluster, key)
        if value is not None and value < lowest:
            raise ConfigError(f"cluster.{key}={value}: must be {lowest} or more")
    for line in cluster.lines:
        if not line.startswith("-"):
            raise ConfigError(f"cluster.lines: {line}: give options of sbatch, each as --name=value")
    check_time(cluster)


def check_time(cluster: ClusterConfig) -> None:
    """Raise ConfigError for a time limit that Slurm cannot read, or that is over before it is warned of."""
    if cluster.time is None:
        return
    match = TIME.fullmatch(cluster.time)
    if not match:
        raise ConfigError(f"cluster.time={cluster.time}: give MINUTES, H:MM:SS or DAYS-H:MM:SS")
    parts = [int(part or 0) for part in match.groups()]
    seconds = parts[0] * 86400 + parts[1] * 3600 + parts[2] * 60 + parts[3] + parts[4] * 60
    if cluster.max_requeues and seconds <= cluster.warn_sec:
        raise ConfigError(
            f"cluster.time={cluster.time}: is over before cluster.warn_sec={cluster.warn_sec}; give more time"
        )


def check_single(config: RunConfig, multirun: bool) -> None:
    """Raise ConfigError where several machines are to do what needs a list of jobs or an older folder, and where one
    run is to be several jobs."""
    at_once = config.sweep.jobs_at_once
    if at_once < 1:
        raise ConfigError(f"sweep.jobs_at_once={at_once}: must be 1 or more")
    if at_once > 1 and config.cluster.kind != "none":
        raise ConfigError(
            f"sweep.jobs_at_once={at_once}: shares this machine, and cluster={config.cluster.name} starts jobs"
            " elsewhere; leave it out, or give cluster.jobs_at_once"
        )
    if at_once > 1 and not (multirun or config.sweep.resume):
        raise ConfigError(f"sweep.jobs_at_once={at_once}: has no effect on a single run; add -m, or leave it out")
    asked = "-m" if multirun else f"sweep.resume={config.sweep.resume}" if config.sweep.resume else ""
    asked = asked or (f"resume={config.resume}" if config.resume else "")
    if config.nodes > 1 and config.cluster.kind == "none" and asked:
        raise ConfigError(
            f"nodes={config.nodes} {asked}: several machines run one job at a time, from its start; leave {asked} out"
        )
