"""Every option of a run: its name, type, default and meaning.

This module needs only the standard library, because the worker reads it too, without Hydra and OmegaConf. In the
launcher, Hydra composes it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from conf import metric, target
from conf.dataset_options import DatasetConfig
from conf.evaluation import Intervals, intervals_of_run
from conf.launch_options import (
    AlertConfig,
    ClusterConfig,
    ContainerConfig,
    InstanceConfig,
    ProfileConfig,
    ProgramConfig,
    SearchConfig,
    StudyConfig,
    SweepConfig,
    TrackingConfig,
)  # fmt: skip
from conf.newer_options import remove_newer
from conf.target import Target

REQUIRED = "???"  # OmegaConf's mark of a mandatory value
PROGRAM = "program:COMMAND"  # the workload of model=program
SAVE_MODEL = ("none", "final", "best")
LR_SCALING = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}  # exponent of (global batch / base batch)
# These decide where and whether a run is recorded, not what is measured.
NOT_MEASURED = (
    "tracking", "sweep", "study", "search", "resume", "trust", "runs_dir", "dry_run", "timeout_sec", "target_set",
    "node_rank", "rendezvous", "rendezvous_timeout_sec", "cluster", "detach", "log_model", "register_model", "profile",
    "alert", "data_dir",
)  # fmt: skip


class Indexed(Protocol):
    """A GPU with its index."""

    @property
    def index(self) -> int: ...


Gpu = TypeVar("Gpu", bound=Indexed)


class ConfigError(ValueError):
    """A request that cannot run. The text names the key, the value, what is allowed and the next step."""


@dataclass
class OptimizerConfig:
    lr: float = REQUIRED  # type: ignore[assignment]  # learning rate at base_batch_size (see lr_scaling)
    lr_scaling: str = "none"  # none | linear: lr times (global batch / base_batch_size) | sqrt: times its square root
    base_batch_size: int = 0  # the global batch that lr was chosen for; required by linear and sqrt
    weight_decay: float = 0.0  # weight decay, as the model's optimizer applies it


@dataclass
class ModelConfig:
    name: str = REQUIRED  # name in runs and reports
    workload: str = REQUIRED  # package.module:NAME of a timetrial.Workload
    batch_size: int = REQUIRED  # type: ignore[assignment]  # samples (text: tokens) per device and step; with global_batch, over all devices
    # metric: [lowest, highest possible value, lower | higher: which is better], or the last word alone without bounds
    metrics: dict[str, Any] = field(default_factory=dict)
    # dataset: {metric: value}; all must be reached: 0.9 or "<=3.28". Typed no deeper, since OmegaConf could not merge
    targets: dict[str, Any] = field(default_factory=dict)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    hparams: dict[str, Any] = field(default_factory=dict)  # parameters of the model's constructor
    group_size: int = 1  # samples that stay together, as a positive and its negatives; batch_size is a multiple
    global_batch: bool = False  # batch_size is that of all devices together, however many they are
    by_gpus: dict[Any, Any] = field(default_factory=dict)  # defaults on N GPUs or more: {4: {batch_size: 8, lr: 0.1}}
    fp8: bool = False  # whether the model has layers for precision=fp8
    exportable: bool = True  # false if the model is not a single network: log_model=true is refused
    eval_every_steps: int | None = None  # this and the following three hold if the root sets no interval
    eval_every_samples: int | None = None  # as the root's
    eval_at_epochs: list[int] = field(default_factory=list)  # as the root's
    eval_after_steps: int | None = None  # as the root's


@dataclass
class PrecisionConfig:
    name: str = REQUIRED  # fp32 | tf32 | bf16 | fp16 | fp8: precision of matrix products, observed before training
    trainer: str = REQUIRED  # Lightning's precision argument
    tf32: bool = False  # matrix units may round fp32 inputs to tf32 (10 bits of mantissa)
    needs_gpu: bool = False  # refused on CPUs
    min_compute_capability: float = 0.0  # lowest compute capability of an NVIDIA GPU


@dataclass
class StackConfig:
    name: str = REQUIRED  # name in runs and reports
    # native: this interpreter, as it is | python: another one | uv: an environment that uv makes from the declaration
    # | container: an image
    kind: str = "native"
    # python: the interpreter's path; uv: its version or path, default: this one's; container: its path in the image
    python: str | None = None
    # uv: PyTorch's version, not needed for programs; container: the version that the image must have
    torch: str | None = None
    container: ContainerConfig = field(default_factory=ContainerConfig)
    requirements: list[str] = field(default_factory=list)  # uv: packages of its workloads beside torch and Lightning
    overrides: list[str] = field(default_factory=list)  # uv: versions against other packages: nvidia-nccl-cu12==2.27.5
    index: str | None = None  # uv: URL of a package index that precedes the default one
    exclude_newer: str | None = None  # uv: ignore packages uploaded after this date: 2026-11-20
    env: dict[str, str] = field(default_factory=dict)  # environment variables of the worker: +stack.env.NAME=VALUE
    # Versions (or their prefixes) that the worker must find, by fingerprint key: torch, cuda, cudnn, nccl, driver,
    # python; of programs also jax, tensorflow. On the command line: +stack.expect.torch=2.11
    expect: dict[str, str] = field(default_factory=dict)


@dataclass
class RunConfig:
    model: ModelConfig = field(default_factory=ModelConfig)
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    stack: StackConfig = field(default_factory=StackConfig)
    instance: InstanceConfig = field(default_factory=InstanceConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    study: StudyConfig = field(default_factory=StudyConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    program: ProgramConfig = field(default_factory=ProgramConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    profile: ProfileConfig = field(default_factory=ProfileConfig)
    alert: AlertConfig = field(default_factory=AlertConfig)
    # GPUs of a node: a number, or indices [0,4]; 0 = CPU; auto = 1 if a GPU is visible and cpu_processes is 1, else 0
    gpus: Any = "auto"
    nodes: int = 1  # number of machines: a cluster's, or those on which you start launch.py (docs/cluster.md)
    node_rank: int = 0  # this machine's number; number 0 makes the run folder, in the runs_dir that all share
    rendezvous: str | None = None  # HOST:PORT of node_rank=0, as the other machines reach it
    rendezvous_timeout_sec: float = 30.0  # how long machines wait for each other before the training
    detach: bool = False  # cluster=slurm: submit and return; `python -m tracking follow` shows the runs later
    cpu_processes: int = 1  # data-parallel processes over gloo when gpus=0
    seed: int = 1  # decides the weights, the order of the samples, augmentation and dropout
    target: float | int | str | None = None  # overrides the workload's target on this dataset: 0.9; a loss: "<=3.28"
    target_set: str = ""  # file of conf/target_set: targets of MLPerf's closed division; empty: the model's
    stop_at_target: bool = True  # false: train all epochs and only record when the target was reached
    max_epochs: int | None = None  # default: the length of the model's schedule
    batch_size: int | None = None  # samples (text: tokens) per device and step; default: the model's
    global_batch_size: int | None = None  # in place of batch_size: that of all devices together
    limit_train_batches: int | None = None  # most steps of an epoch, for a quick look
    compile: bool | None = None  # torch.compile the model; default: on GPUs only
    strategy: str = "ddp"  # ddp: each process has the whole model | fsdp: each has a part and gathers layer by layer
    overlap_grad_reduce: bool | None = None  # exchange gradients during backward; default: not over one node's NVLink
    log_every_n_steps: int = 50  # steps of a measured window
    eval_every_steps: int | None = None  # evaluate after every so many steps and the last; default: after every epoch
    eval_every_samples: int | None = None  # the same in samples, rounded to whole steps
    eval_at_epochs: list[int] = field(default_factory=list)  # evaluate after these epochs only: [32,43,48]
    eval_after_steps: int | None = None  # no evaluation before so many steps
    checkpoint_every_epochs: int | None = None  # save a checkpoint after every so many epochs; default: never
    checkpoint_every_steps: int | None = None  # the same after every so many steps, beside the training
    save_model: str = "none"  # none | final | best: weights to keep in model.pt; best: those of the best evaluation
    log_model: bool = False  # log the final weights, or those of save_model=best, as an MLflow model
    register_model: str | None = None  # name under which MLflow registers a version of that model
    price_per_hour: float | None = None  # USD for a node and hour; default: the instance's
    price_per_gpu_hour: float | None = None  # in place of price_per_hour: USD for an hour of each GPU in use
    timeout_sec: float | None = None  # stop the run after this long; it then counts as failed
    warm_up: bool = False  # this run only fills caches; means do not count it
    resume: str | None = None  # folder of an interrupted run: continue it from its newest checkpoint
    trust: bool = False  # resume another user's run folder or sweep, and execute what it names
    data_dir: str = "data"  # folder of the datasets' folders, such as imagenet and coco; dataset.path overrides it
    runs_dir: str = "runs"  # folder in which run folders are made
    dry_run: bool = False  # compose, check and print the commands, without training

    def evaluated(self) -> Intervals:
        """When to evaluate, by the root's options, else by the model's."""
        return intervals_of_run(self, self.model)

    def is_program(self) -> bool:
        """Whether a user's program trains, in place of a workload."""
        return self.model.workload == PROGRAM

    def processes_per_node(self) -> int:
        return self.num_gpus() if self.on_gpu() else self.cpu_processes

    def num_gpus(self) -> int:
        """The number of GPUs of a node. `gpus` must be resolved."""
        return len(self.gpus) if isinstance(self.gpus, list) else int(self.gpus)

    def chosen(self, visible: Sequence[Gpu]) -> list[Gpu]:
        """The visible GPUs that a node uses, in the order of its ranks."""
        if isinstance(self.gpus, list):
            by_index = {gpu.index: gpu for gpu in visible}
            return [by_index[index] for index in self.gpus if index in by_index]
        return list(visible[: self.num_gpus()])

    def on_gpu(self) -> bool:
        """Whether the run uses GPUs. `gpus` must be resolved."""
        return self.num_gpus() > 0

    def world_size(self) -> int:
        return self.processes_per_node() * self.nodes

    def device_batch_size(self) -> int:
        return self.model.batch_size if self.batch_size is None else self.batch_size

    def samples_per_step(self) -> int:
        return self.device_batch_size() * self.world_size()

    def learning_rate(self) -> float:
        """The learning rate after scaling (linear: arXiv:1706.02677; sqrt: arXiv:1705.08741), before any schedule."""
        optimizer = self.model.optimizer
        power = LR_SCALING[optimizer.lr_scaling]
        return optimizer.lr * (self.samples_per_step() / optimizer.base_batch_size) ** power if power else optimizer.lr

    def sharded(self) -> bool:
        """Whether each process has a part of the model."""
        return self.strategy == "fsdp"

    def compiled(self) -> bool:
        return self.on_gpu() if self.compile is None else self.compile

    def profiled(self) -> bool:
        """Whether steps of this run are traced after its end."""
        is_requested = self.profile.steps > 0 or self.profile.file is not None
        return is_requested and self.profile.seed in (None, self.seed) and not self.warm_up

    def targets(self) -> dict[str, Target]:
        """The targets by metric; empty if the dataset has none. Raises ConfigError."""
        targets = dict(self.model.targets.get(self.dataset.name, {}))
        if self.target is not None:
            targets[next(iter(targets or self.model.metrics or self.program.evaluated()))] = self.target
        parsed: dict[str, Target] = {}
        for name, value in targets.items():
            try:
                parsed[name] = target.parse(value)
            except ValueError as error:
                if self.target is not None:
                    raise ConfigError(f"target={value}: {error}. {target.ON_ANOTHER_METRIC}") from None
                raise ConfigError(f"model.targets.{self.dataset.name}.{name}={value}: {error}") from None
        return parsed

    def declared(self) -> dict[str, str]:
        """The declared directions by metric (conf.metric). Raises ValueError."""
        return metric.directions(self.model.metrics) | self.program.directions()

    def directions(self) -> dict[str, str]:
        """The directions by metric, from the declarations and the targets. Raises ValueError."""
        return self.declared() | target.directions_of(self.targets())

    def config_hash(self) -> str:
        """A hash of what is measured: equal for two runs that differ only in where they are recorded."""
        content = dataclasses.asdict(self)
        for key in (*NOT_MEASURED, "global_batch_size"):  # The checks turn global_batch_size into batch_size.
            del content[key]
        remove_newer(content)
        content["model"]["metrics"] = metric.bounds(self.model.metrics)  # A direction does not change the measurement.
        content["program"]["metrics"] = self.program.patterns()
        if content.pop("program") and self.is_program():
            content["program"] = self.program.hashed()
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
