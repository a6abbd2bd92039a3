"""Groups of options that do not say how a workload is trained: records, containers, clusters, and more."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from conf import metric

KINDS = ("none", "here", "slurm")
MIRRORS = ("launcher", "node")
EVALUATED = "eval/"  # begins the keys of a program's evaluations
PROFILE_STEPS = {"true": "20", "false": "0"}


@dataclass
class ContainerConfig:
    engine: str | None = None  # docker | podman | apptainer | singularity | enroot | pyxis
    image: str | None = None  # NAME:TAG or NAME@sha256:DIGEST; of the last three a file, or docker://NAME:TAG
    mounts: list[str] = field(default_factory=list)  # what else it sees: OUTSIDE[:INSIDE[:rw]], read-only without rw
    shm: str = "host"  # docker, podman: host = the machine's /dev/shm; or the size of one of its own: 16g
    user: str | None = None  # docker, podman: UID:GID in the container; default: yours
    options: list[str] = field(default_factory=list)  # further options of the engine's run, exec or start command


@dataclass
class ClusterConfig:
    """Who starts a run's nodes, and with what."""

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
class ProfileConfig:
    """What is traced of a run once its clock has stopped."""

    steps: int = 0  # training steps that are traced; profile=true is profile.steps=20
    seed: int | None = None  # trace only a sweep's runs of this seed
    trace_megabytes: float = 200.0  # fewer steps are traced where those of a rank would be more than this, not packed
    nvtx: bool = False  # name epochs, steps, data, exchange and evaluation for Nsight Systems, all through the training


PER_STEP = ("samples_per_step", "tokens_per_step")


@dataclass
class ProgramConfig:
    """What model=program runs. A regular expression is searched in each line of output and has one group (...)."""

    # The command, started without a shell; {seed}, {gpus}, {processes}, {batch_size}, {lr}, {max_epochs}, {precision}
    # and {run_dir} are replaced, and {{ and }} are braces
    command: str = ""
    launch: str = "none"  # none: the command as it is | torchrun: on torchrun of the stack, with a process a device
    cwd: str | None = None  # folder in which it is started; default: where launch.py is
    # key: regular expression of its number; eval/NAME is an evaluation, which a target may name, others are curves.
    # [EXPRESSION, lower] or [EXPRESSION, higher] says which way the metric is better.
    metrics: dict[str, Any] = field(default_factory=dict)
    samples: str | None = None  # regular expression of the number of samples trained so far
    epoch: str | None = None  # regular expression of the number of the epoch that the line and those behind it are of
    step: str | None = None  # regular expression of the step, likewise
    start: str | None = None  # regular expression, without a group, of the line with which the training begins
    unit: str = "samples"  # what a sample is
    # samples that a step of all its processes trains, for a program that prints steps and no samples
    samples_per_step: int | None = None
    tokens_per_step: int | None = None  # likewise its tokens

    def hashed(self) -> dict[str, Any]:
        """What a run's hash is made of: it stays what it was before there were options by the step."""
        content = asdict(self) | {"metrics": self.patterns()}  # A direction changes nothing that is measured.
        return {key: value for key, value in content.items() if key not in PER_STEP or value}

    def evaluated(self) -> list[str]:
        """The names of its evaluations' metrics; MLPerf's log has one, which it gives no name."""
        return [key.removeprefix(EVALUATED) for key in self.metrics if key.startswith(EVALUATED)] or ["accuracy"]

    def patterns(self) -> dict[str, Any]:
        """The regular expression of each key, without its direction."""
        return {key: value[0] if _has_direction(value) else value for key, value in self.metrics.items()}

    def directions(self) -> dict[str, str]:
        """The directions that are declared, by the metrics' names."""
        there = {key: value[1] for key, value in self.metrics.items() if _has_direction(value)}
        return {key.removeprefix(EVALUATED): better for key, better in there.items()}


def _has_direction(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and value[1] in metric.DIRECTIONS


@dataclass
class SweepConfig:
    resume: str | None = None  # id of a sweep: run only its jobs that have not finished
    # So many jobs side by side on this machine, each with its share of cores and GPUs; exploring: one a GPU
    jobs_at_once: int = 1
    # Shuffle the jobs of each seed by this number, so that a machine's drift does not look like a setting's effect
    shuffle: int | None = None
    paired: bool = False  # reports compare runs of the same seed in pairs; decided before there are runs
    warm_up: bool = False  # run each stack once before all others with warm_up=true
    until_decided: bool = False  # two to four settings: repeat them with new seeds until one is known to be best
    run_others: bool = False  # a stack that cannot run here fails its own jobs; else it refuses the sweep


@dataclass
class StudyConfig:
    name: str = ""  # name of the file in conf/study; empty where the run is of no study
    by: list[str] = field(default_factory=list)  # axes of its report
    reference: list[str] = field(default_factory=list)  # published figures that its report shows beside
    smaller: str = ""  # overrides that cut it down to two CPU cores and minutes
    # a device's batch by number of devices, {1: 512, 4: 416, 8: 208}; or by model such a table
    batch_size: dict[Any, Any] = field(default_factory=dict)
    batch_factor: float | None = None  # times the batch of the model, in place of batch_size
    data: str = ""  # real: each model trains on its own dataset (imagenet, coco, wmt, ...), in its dataset.path


OBJECTIVES = ("time", "cost", "energy")


@dataclass
class SearchConfig:
    """A search of settings as the user asks for it; of one of its runs, also which trial that is."""

    name: str = ""  # name of the file in conf/search; empty: no search
    # what is to be least until the target is reached: time | cost (USD) | energy (joules), or two of them: time,cost
    objective: str = "time"
    budget: str = "1h"  # what all its runs may take, starts included: 30min, 2h, 2gpu-hours, 5usd, 40runs
    max_finalists: int = 4  # settings that are compared by runs of their own, beside the best of each number of GPUs
    source: str | None = None  # search.from=SWEEP: begin with the best settings of an earlier search, measured anew
    # What follows is the search's own, and not to be given.
    axes: list[str] = field(default_factory=list)  # the words that were typed: batch_size=4,8,16
    setting: dict[str, Any] = field(default_factory=dict)  # the trial's value on each axis
    phase: str = ""  # explore | decide
    block: int | None = None  # of deciding: each finalist runs once in a block
    cap_sec: float | None = None  # seconds of the training's clock after which the run is stopped
    trial: int = 0  # its number, from 1


def spelled_out(argument: str) -> str:
    """An argument of launch.py in the words that Hydra takes: `profile=true` is a number of steps.

    No field of Python's is called `from`. To Hydra, a table's rows are new keys.
    """
    argument = re.sub(r"^search\.from=", "search.source=", argument)
    # Unquoted, Hydra would sweep over two objectives.
    argument = re.sub(r"^search\.objective=\[?([\w ]*,[\w ,]*)\]?$", r'search.objective="\1"', argument)
    argument = re.sub(r"^study\.batch_size=", "+study.batch_size=", argument)
    match = re.fullmatch(r"(\+{0,2}profile)=(.+)", argument)
    if not match:
        return argument
    return f"{match[1]}.steps={','.join(PROFILE_STEPS.get(value, value) for value in match[2].split(','))}"


def recipes_of_sizes(arguments: list[str]) -> list[str]:
    """`size=1.5b` beside `model=gpt` is `recipe=gpt_1.5b`: a size is a recipe of one model."""
    models = [word.removeprefix("model=") for word in arguments if word.startswith("model=")]
    if len(models) != 1 or "," in models[0]:
        return arguments
    sizes = {word: word.removeprefix("size=").split(",") for word in arguments if word.startswith("size=")}
    recipes = {word: ",".join(f"{models[0]}_{size}" for size in of_word) for word, of_word in sizes.items()}
    return [f"recipe={recipes[word]}" if word in recipes else word for word in arguments]


@dataclass
class InstanceConfig:
    name: str = "none"  # what runs and reports show
    price_per_hour: float | None = None  # price of a node; the root's price_per_hour overrides
    currency: str = "USD"  # currency of the price; costs are reported in USD
    region: str = ""  # where the price holds
    date: str = ""  # when the price was read
    source: str = ""  # where the price was read
    carbon_g_per_kwh: float | None = None  # grams of CO2 of a kilowatt-hour there; with it a run has its CO2


@dataclass
class AlertConfig:
    # A command, started without a shell, that is told when a run fails, diverges or is slow, and when a sweep has ended
    command: str | None = None
    timeout_sec: float = 10.0  # how long it may take


@dataclass
class TrackingConfig:
    # MLflow tracking URI, without a password; default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db
    uri: str | None = None
    experiment: str = "timetrial"  # MLflow experiment, made where it does not exist
    offline: bool = False  # train without contacting the server; `python -m tracking sync` uploads later
    upload_model: bool = False  # the weights that save_model kept become an artifact of the run
    upload_wait_sec: float = 60.0  # how long to wait at the end for what is not uploaded yet
    system_metrics_interval_sec: float = 2.0  # 0 = no system metrics
