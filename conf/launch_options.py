"""With what a run is started: the options of the group `cluster`, who starts its nodes, and of model=program."""

from __future__ import annotations

from dataclasses import dataclass, field

KINDS = ("none", "here", "slurm")
MIRRORS = ("launcher", "node")


@dataclass
class ClusterConfig:
    name: str = "none"  # what `cluster=` chose
    kind: str = "none"  # none: this machine | here: srun, in an allocation that is there | slurm: sbatch, a job a run
    partition: str | None = None  # sbatch --partition
    account: str | None = None  # sbatch --account
    qos: str | None = None  # sbatch --qos
    constraint: str | None = None  # sbatch --constraint
    time: str | None = None  # sbatch --time: limit of a run, as 4:00:00 or 90 (minutes)
    mem: str | None = None  # sbatch --mem: memory of a node, as 200G; default: the cluster's
    cpus_per_node: int | None = None  # sbatch --cpus-per-task, of which a node has one; default: the cluster's
    exclusive: bool = True  # sbatch --exclusive: no other job on the nodes, which would slow this one down
    gpus_option: str = "--gpus-per-node={gpus}"  # how this cluster is asked for GPUs; another way: --gres=gpu:{gpus}
    lines: list[str] = field(default_factory=list)  # further options of sbatch: --mail-type=FAIL
    before: list[str] = field(default_factory=list)  # lines of shell before the run starts: module load cuda
    jobs_at_once: int = 50  # most jobs of a sweep that are in Slurm's queue together
    max_requeues: int = 0  # how often a run that was preempted, or lost a node, or ran out of time is queued again
    warn_sec: int = 90  # how long before its time limit Slurm tells a run that may be queued again
    mirror: str = "launcher"  # launcher: MLflow is written to by who follows | node: from the run's first node
    poll_sec: float = 10.0  # how often Slurm is asked about all jobs together


@dataclass
class ProgramConfig:
    """What model=program runs. A regular expression is searched in each line of output and has one group (...)."""

    # The command, started without a shell; {seed}, {gpus}, {processes}, {batch_size}, {max_epochs}, {precision} and
    # {run_dir} are replaced, and {{ and }} are braces
    command: str = ""
    launch: str = "none"  # none: the command as it is | torchrun: on torchrun of the stack, with a process a device
    cwd: str | None = None  # folder in which it is started; default: where launch.py is
    # key: regular expression of its number; eval/NAME is an evaluation, which a target may name, others are curves
    metrics: dict[str, str] = field(default_factory=dict)
    samples: str | None = None  # regular expression of the number of samples trained so far
    epoch: str | None = None  # regular expression of the number of the epoch that the line and those behind it are of
    step: str | None = None  # regular expression of the step, likewise
    start: str | None = None  # regular expression, without a group, of the line with which the training begins
    unit: str = "samples"  # what a sample is

    def evaluated(self) -> list[str]:
        """The names of its evaluations' metrics; MLPerf's log has one, which it gives no name."""
        return [key.removeprefix("eval/") for key in self.metrics if key.startswith("eval/")] or ["accuracy"]
