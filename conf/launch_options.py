"""Option groups apart from the training itself: tracking, containers, clusters, sweeps, searches and more."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from conf import metric

CLUSTER_KINDS = ("none", "here", "slurm")
MIRRORS = ("launcher", "node")
EVALUATED = "eval/"  # prefix of a program's evaluation metrics
PROFILE_STEPS = {"true": "20", "false": "0"}


@dataclass
class ContainerConfig:
    engine: str | None = None  # docker | podman | apptainer | singularity | enroot | pyxis
    image: str | None = None  # docker, podman: NAME:TAG or NAME@sha256:DIGEST; others: a file or docker://NAME:TAG
    mounts: list[str] = field(default_factory=list)  # further mounts: OUTSIDE[:INSIDE[:rw]], read-only without rw
    shm: str = "host"  # docker, podman: host = the machine's /dev/shm; or the size of a private one: 16g
    user: str | None = None  # docker, podman: UID:GID in the container; default: yours
    options: list[str] = field(default_factory=list)  # further options of the engine's run, exec or start command


@dataclass
class ClusterConfig:
    """How the nodes of a run are started, and with which resources."""

    name: str = "none"  # the choice of `cluster=`
    kind: str = "none"  # none: this machine | here: srun in an existing allocation | slurm: sbatch, a job for each run
    partition: str | None = None  # sbatch --partition
    account: str | None = None  # sbatch --account
    qos: str | None = None  # sbatch --qos
    constraint: str | None = None  # sbatch --constraint
    time: str | None = None  # sbatch --time: time limit of a run: 4:00:00, or 90 (minutes)
    mem: str | None = None  # sbatch --mem: memory of a node: 200G; default: the cluster's
    cpus_per_node: int | None = None  # sbatch --cpus-per-task, with one task a node; default: the cluster's
    exclusive: bool = True  # sbatch --exclusive: no other job on the nodes, which would slow this one down
    gpus_option: str = "--gpus-per-node={gpus}"  # the option that requests GPUs; another form: --gres=gpu:{gpus}
    lines: list[str] = field(default_factory=list)  # further options of sbatch: --mail-type=FAIL
    before: list[str] = field(default_factory=list)  # shell lines before the run starts: module load cuda
    jobs_at_once: int = 50  # most jobs of a sweep in Slurm's queue at a time
    max_requeues: int = 0  # how often a run is queued again after preemption, loss of a node or the time limit
    warn_sec: int = 90  # with max_requeues: Slurm warns a run this long before its time limit
    mirror: str = "launcher"  # who writes to MLflow: launcher = the process that follows | node = the run's head node
    poll_sec: float = 10.0  # seconds between two queries to Slurm, each about all jobs


@dataclass
class ProfileConfig:
    """The profile of a run, recorded once its clock has stopped; of a program while it trains."""

    steps: int = 0  # number of traced training steps; profile=true is 20; a program is traced for profile.seconds
    seed: int | None = None  # trace only a sweep's runs of this seed
    trace_megabytes: float = 200.0  # largest trace of a rank, uncompressed; fewer steps are traced to stay below it
    file: str | None = None  # a program's own trace (Chrome's JSON, .gz too), as '{run_dir}/trace/**/*.json.gz'
    seconds: float = 5.0  # how long CUPTI traces a program
    after_sec: float = 30.0  # when it begins: seconds since the program's training began
    nvtx: bool = False  # for Nsight Systems: mark epochs, steps, data, exchange and evaluation in the whole training


PER_STEP = ("samples_per_step", "tokens_per_step")


@dataclass
class ProgramConfig:
    """The program of model=program. Each regular expression is searched in each output line and has one group (...)."""

    # The command, started without a shell. {seed}, {gpus}, {processes}, {batch_size}, {lr}, {max_epochs}, {precision},
    # {run_dir} and {stack} (its name) are replaced; {{ and }} are braces
    command: str = ""
    launch: str = "none"  # none: the command as it is | torchrun: by the stack's torchrun, with a process a device
    cwd: str | None = None  # working directory; default: the folder of launch.py
    # key: regular expression of its number. eval/NAME is an evaluation metric, which can have a target; others are
    # curves. [EXPRESSION, lower] or [EXPRESSION, higher] also declares which way the metric is better.
    metrics: dict[str, Any] = field(default_factory=dict)
    samples: str | None = None  # regular expression of the number of samples trained so far
    epoch: str | None = None  # regular expression of the epoch's number, which holds for this and the following lines
    step: str | None = None  # regular expression of the step's number, likewise
    start: str | None = None  # regular expression, without a group, of the line at which the training begins
    unit: str = "samples"  # the unit of samples
    # samples of a step over all its processes, for a program that prints steps but not samples
    samples_per_step: int | None = None
    tokens_per_step: int | None = None  # likewise tokens

    def hashed(self) -> dict[str, Any]:
        """The options that enter a run's hash. Unset PER_STEP options are left out, so that older runs' hashes stay."""
        content = asdict(self) | {"metrics": self.patterns()}  # A direction does not change the measurement.
        return {key: value for key, value in content.items() if key not in PER_STEP or value}

    def evaluated(self) -> list[str]:
        """The names of the evaluation metrics; `accuracy` for the one metric of MLPerf's log, which has no name."""
        return [key.removeprefix(EVALUATED) for key in self.metrics if key.startswith(EVALUATED)] or ["accuracy"]

    def patterns(self) -> dict[str, Any]:
        """The regular expression of each key, without its direction."""
        return {key: value[0] if _has_direction(value) else value for key, value in self.metrics.items()}

    def directions(self) -> dict[str, str]:
        """The declared directions by name of the metric."""
        declared = {key: value[1] for key, value in self.metrics.items() if _has_direction(value)}
        return {key.removeprefix(EVALUATED): better for key, better in declared.items()}


def _has_direction(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and value[1] in metric.DIRECTIONS


@dataclass
class SweepConfig:
    resume: str | None = None  # id of a sweep: run only its unfinished jobs
    # Number of jobs side by side on this machine, each with its share of cores and GPUs; exploring: one for each GPU
    jobs_at_once: int = 1
    # Seed that shuffles the jobs within each seed, so that a machine's drift does not look like a setting's effect
    shuffle: int | None = None
    paired: bool = False  # reports compare runs of the same seed in pairs; to be decided before the runs
    warm_up: bool = False  # first run each stack once with warm_up=true
    until_decided: bool = False  # two to four settings: repeat them with new seeds until one is known to be best
    run_others: bool = False  # if a stack cannot run here: true = only its own jobs fail; false = the sweep is refused


@dataclass
class StudyConfig:
    name: str = ""  # name of the file in conf/study; empty without a study
    by: list[str] = field(default_factory=list)  # axes of its report
    reference: list[str] = field(default_factory=list)  # published figures that its report shows beside its own
    smaller: str = ""  # overrides that make it run in minutes on two CPU cores
    # batch_size of a device by number of devices, {1: 512, 4: 416, 8: 208}; or such a table for each model
    batch_size: dict[Any, Any] = field(default_factory=dict)
    batch_factor: float | None = None  # in place of batch_size: a factor of the model's batch size
    data: str = ""  # real: each model trains on its real dataset (imagenet, coco, wmt, ...) of data_dir


OBJECTIVES = ("time", "cost", "energy")
SET_BY_SEARCH = ("name", "axes", "setting", "phase", "block", "cap_sec", "trial")  # The command line cannot.


@dataclass
class SearchConfig:
    """The search that was requested; in one of its runs, also that run's trial."""

    name: str = ""  # name of the file in conf/search; empty: no search
    # what to minimise until the target is reached: time | cost (USD) | energy (joules), or two of them: time,cost
    objective: str = "time"
    budget: str = "1h"  # limit of all its runs, starts included: 30min, 2h, 2gpu-hours, 5usd, 40runs
    max_finalists: int = 4  # settings compared by repeated runs, beside the best setting of each number of GPUs
    source: str | None = None  # search.from=SWEEP: begin with the best settings of an earlier search, measured anew
    # The search sets these itself; the command line cannot.
    axes: list[str] = field(default_factory=list)  # the axes as typed: batch_size=4,8,16
    setting: dict[str, Any] = field(default_factory=dict)  # the trial's value on each axis
    phase: str = ""  # explore | decide
    block: int | None = None  # number of the block in the phase decide; each finalist runs once in a block
    cap_sec: float | None = None  # the run is stopped after so many seconds of its training clock
    trial: int = 0  # the trial's number, from 1


@dataclass
class InstanceConfig:
    name: str = "none"  # name in runs and reports
    price_per_hour: float | None = None  # price of a node; the root's price_per_hour overrides it
    currency: str = "USD"  # currency of the price; costs are reported in USD
    region: str = ""  # region in which the price holds
    date: str = ""  # date when the price was read
    source: str = ""  # where the price was read
    carbon_g_per_kwh: float | None = None  # grams of CO2 for a kilowatt-hour there; gives a run its CO2


@dataclass
class AlertConfig:
    # A command, started without a shell, when a run fails, diverges or is slow, and when a sweep has ended
    command: str | None = None
    timeout_sec: float = 10.0  # time limit of the command


@dataclass
class TrackingConfig:
    # MLflow tracking URI, without a password; default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db
    uri: str | None = None
    experiment: str = "timetrial"  # MLflow experiment, created if missing
    offline: bool = False  # train without contacting the server; `python -m tracking sync` uploads later
    upload_model: bool = False  # upload the weights of save_model as an artifact of the run
    upload_wait_sec: float = 60.0  # how long to wait at the end for unfinished uploads
    system_metrics_interval_sec: float = 2.0  # 0 = no system metrics
