"""Refuses impossible options of GPUs, nodes and clusters, before machines wait for each other."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Protocol

from conf.launch_options import CLUSTER_KINDS, MIRRORS, ClusterConfig
from conf.schema import ConfigError, RunConfig

TIME_PATTERN = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)|(\d+)")  # days, hours, minutes, seconds; or minutes alone
JOBS_AT_ONCE = "sweep.jobs_at_once="  # prefix of the tag `neighbours` of a run beside other jobs of its sweep
MIN_THREADS_PER_JOB = 2  # one core
PROCESSES_PER_CORE = 8  # With more, they wait for each other rather than train.
ADDRESS_PATTERN = re.compile(r"(?P<host>[^:\s/]+):(?P<port>\d{1,5})")


class VisibleGpu(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def compute_capability(self) -> float | None: ...
    @property
    def energy_counter(self) -> bool | None: ...


def address(rendezvous: str) -> tuple[str, int]:
    """Host and port of HOST:PORT. Raises ConfigError."""
    match = ADDRESS_PATTERN.fullmatch(rendezvous)
    if not match or not 1024 <= int(match["port"]) < 65536:
        raise ConfigError(
            f"rendezvous={rendezvous}: not an address. Allowed: HOST:PORT of node_rank=0, as the other nodes reach it,"
            " with a port from 1024 to 65535 that is free there"
        )
    return match["host"], int(match["port"])


def resolve_gpus(
    requested: Any, gpus: Sequence[VisibleGpu], cpu_processes: int, on_cluster: bool = False
) -> int | list[int]:
    """The number of GPUs of a node, or the requested indices. Raises ConfigError.

    With `on_cluster` the nodes are a cluster's, whose GPUs are not known here.
    """
    is_count = isinstance(requested, int) and not isinstance(requested, bool) and requested >= 0
    if on_cluster:
        if not is_count:
            raise ConfigError(
                f"gpus={requested}: the GPUs of a cluster's nodes are not known here. Next: give a number, 0 for CPUs"
            )
        return int(requested)
    if requested == "auto":
        return min(1, len(gpus)) if cpu_processes == 1 else 0
    visible = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus) or "none"
    visible_gpus = f"{len(gpus)} visible on this machine ({visible})"
    next_step = "Next: check nvidia-smi and CUDA_VISIBLE_DEVICES"
    if isinstance(requested, list):
        option = f"gpus=[{','.join(map(str, requested))}]"
        if not requested or len(set(map(str, requested))) < len(requested):
            raise ConfigError(
                f"{option}: names no GPU, or one twice; {visible_gpus}. Next: give each index once, as in gpus=[0,1]"
            )
        if unknown := [index for index in requested if str(index) not in {str(gpu.index) for gpu in gpus}]:
            raise ConfigError(f"{option}: no GPU {unknown[0]}; {visible_gpus}. Allowed: their indices. {next_step}")
        return [int(index) for index in requested]
    allowed = f"auto, 0 for the CPU, or up to {len(gpus)}" if gpus else "auto, or 0 for the CPU"
    if not is_count or requested > len(gpus):
        raise ConfigError(f"gpus={requested}: {visible_gpus}. Allowed: {allowed}. {next_step}")
    return int(requested)


def resolve_jobs_at_once(config: RunConfig, overrides: Sequence[str], gpus: Sequence[VisibleGpu]) -> int:
    """How many jobs run at once: sweep.jobs_at_once; default of a search: one for each GPU, if each has a core."""
    is_set = any(word.startswith("sweep.jobs_at_once=") for word in overrides)
    is_this_machine = config.cluster.kind == "none" and config.nodes == 1 and not isinstance(config.gpus, list)
    if is_set or not (config.search.name and is_this_machine and config.on_gpu()):
        return config.sweep.jobs_at_once
    return len(gpus) if len(os.sched_getaffinity(0)) >= MIN_THREADS_PER_JOB * len(gpus) else 1


def jobs_on_the_same_machine(config: RunConfig) -> str:
    """The tag `neighbours` of a run beside other jobs of its sweep; empty without such jobs."""
    return f"{JOBS_AT_ONCE}{config.sweep.jobs_at_once}" if config.sweep.jobs_at_once > 1 else ""


def check_processes(config: RunConfig) -> None:
    """Raise ConfigError for far more processes than this machine has cores: each imports PyTorch."""
    most = PROCESSES_PER_CORE * len(os.sched_getaffinity(0))
    if config.cpu_processes > most:
        raise ConfigError(
            f"cpu_processes={config.cpu_processes}: too many for the {len(os.sched_getaffinity(0))} cores of this"
            f" machine. Allowed here: up to {most}"
        )


def check_nodes(config: RunConfig) -> None:
    """Raise ConfigError if nodes, node_rank, rendezvous and cluster do not fit together."""
    if config.nodes < 1:
        raise ConfigError(f"nodes={config.nodes}: must be above 0")
    if config.cluster.kind != "none":
        check_cluster(config)
        return
    check_processes(config)
    if config.detach:
        raise ConfigError("detach=true: has no effect without cluster=slurm. Next: leave it out, or give cluster=slurm")
    if not 0 <= config.node_rank < config.nodes:
        raise ConfigError(
            f"node_rank={config.node_rank}: out of range. Allowed with nodes={config.nodes}: 0 to {config.nodes - 1}, a"
            " different one on each machine"
        )
    if config.rendezvous_timeout_sec <= 0:
        raise ConfigError(f"rendezvous_timeout_sec={config.rendezvous_timeout_sec:g}: must be above 0")
    if config.nodes == 1:
        if config.rendezvous is not None:
            raise ConfigError(
                f"rendezvous={config.rendezvous}: has no effect with nodes=1. Next: give nodes=2, or leave it out"
            )
        return
    if config.rendezvous is None:
        raise ConfigError(
            f"nodes={config.nodes}: the machines have to find each other. Next: give cluster=slurm, or"
            " rendezvous=HOST:PORT and on each machine its node_rank; on one machine give nodes=1"
        )
    address(config.rendezvous)


def check_cluster(config: RunConfig) -> None:
    """Raise ConfigError for options that a scheduler does not take, or decides itself."""
    cluster = config.cluster
    option = f"cluster={cluster.name}"
    if config.rendezvous is not None or config.node_rank:
        key = f"rendezvous={config.rendezvous}" if config.rendezvous else f"node_rank={config.node_rank}"
        raise ConfigError(f"{key}: has no effect with {option}, which sets it itself. Next: leave it out")
    if cluster.kind not in CLUSTER_KINDS:
        raise ConfigError(f"cluster.kind={cluster.kind}: no such kind. Allowed: {', '.join(CLUSTER_KINDS)}")
    if cluster.mirror not in MIRRORS:
        raise ConfigError(f"cluster.mirror={cluster.mirror}: no such value. Allowed: {', '.join(MIRRORS)}")
    if config.detach and cluster.kind != "slurm":
        raise ConfigError(
            f"detach=true: has no effect with {option}, whose nodes end with their launcher. Next: leave it out"
        )
    for key, minimum in (
        ("jobs_at_once", 1),
        ("max_requeues", 0),
        ("warn_sec", 1),
        ("poll_sec", 1),
        ("cpus_per_node", 1),
    ):
        value = getattr(cluster, key)
        if value is not None and value < minimum:
            raise ConfigError(f"cluster.{key}={value}: must be {minimum} or more")
    for line in cluster.lines:
        if not line.startswith("-"):
            raise ConfigError(f"cluster.lines={line}: not an option of sbatch. Allowed: --name=value")
    check_time(cluster)


def check_time(cluster: ClusterConfig) -> None:
    """Raise ConfigError for a time limit that Slurm cannot parse, or that is not longer than cluster.warn_sec."""
    if cluster.time is None:
        return
    match = TIME_PATTERN.fullmatch(cluster.time)
    if not match:
        raise ConfigError(f"cluster.time={cluster.time}: not a time. Allowed: MINUTES, H:MM:SS or DAYS-H:MM:SS")
    parts = [int(part or 0) for part in match.groups()]
    seconds = parts[0] * 86400 + parts[1] * 3600 + parts[2] * 60 + parts[3] + parts[4] * 60
    if cluster.max_requeues and seconds <= cluster.warn_sec:
        raise ConfigError(
            f"cluster.time={cluster.time}: not longer than cluster.warn_sec={cluster.warn_sec}. Next: give more time"
        )


def check_single_machine(config: RunConfig, multirun: bool) -> None:
    """Raise ConfigError for a wrong sweep.jobs_at_once, or a sweep or resume on several machines without a cluster."""
    at_once = config.sweep.jobs_at_once
    if at_once < 1:
        raise ConfigError(f"sweep.jobs_at_once={at_once}: must be 1 or more")
    if at_once > 1 and config.cluster.kind != "none":
        raise ConfigError(
            f"sweep.jobs_at_once={at_once}: divides this machine, but cluster={config.cluster.name} starts jobs"
            " elsewhere. Next: leave it out, or give cluster.jobs_at_once"
        )
    if at_once > 1 and not (multirun or config.sweep.resume):
        raise ConfigError(f"sweep.jobs_at_once={at_once}: has no effect on a single run. Next: add -m, or leave it out")
    option = "-m" if multirun else f"sweep.resume={config.sweep.resume}" if config.sweep.resume else ""
    option = option or (f"resume={config.resume}" if config.resume else "")
    if config.nodes > 1 and config.cluster.kind == "none" and option:
        raise ConfigError(
            f"nodes={config.nodes} {option}: several machines run one job at a time, from its start. Next: leave"
            f" {option} out"
        )
