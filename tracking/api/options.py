"""Checks the options of a user's script, and makes a run's config from them and the trainer's setup."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from conf import target as targets
from conf.dataset_options import DatasetConfig
from conf.launch_options import InstanceConfig, TrackingConfig
from conf.metric import DIRECTIONS
from conf.schema import ConfigError, ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig, StackConfig
from conf.target import Target
from tracking.api import script
from tracking.api.script_arguments import MetricNames, check_flag, check_not_below_0, check_whole, checked_params
from tracking.api.script_mlflow import DEFAULT_EXPERIMENT
from tracking.record import journal
from tracking.request.name_checks import (
    MAX_NAME,
    check_experiment,
    check_name,
    check_runs_dir,
    check_secrets,
    check_text,
    check_uri,
)

# Seeds of scripts are below this. Seeds that PyTorch drew itself are above.
MAX_SEED = 2**32
# Names of precisions in Lightning and Keras, with ours. Others stay unchanged.
PRECISIONS = {
    "32-true": "fp32", "32": "fp32", "bf16-mixed": "bf16", "bf16-true": "bf16", "16-mixed": "fp16", "16-true": "fp16",
    "64-true": "fp64", "float32": "fp32", "mixed_bfloat16": "bf16", "mixed_float16": "fp16",
}  # fmt: skip


@dataclass(frozen=True)
class TrialOptions:
    """The options of TimeTrial and time_trial, documented there."""

    target: Mapping[str, Target]
    name: str | None = None
    dataset: str = "own"
    experiment: str | None = None
    uri: str | None = None
    runs_dir: str = "runs"
    log_every_n_steps: int = 50
    stop_at_target: bool = True
    price_per_hour: float | None = None
    offline: bool = False
    params: Mapping[str, journal.Scalar] = field(default_factory=dict)
    system_metrics_interval_sec: float = 2.0
    metrics: Mapping[str, str] = field(default_factory=dict)  # directions
    names: Mapping[str, str] = field(default_factory=dict)  # names of the target's metrics, with their MLflow keys


@dataclass(frozen=True)
class TrainingSetup:
    """Facts about a training at its start; None: not known. Each of the `nodes` has `devices`."""

    model: str
    on_gpu: bool
    nodes: int
    devices: int
    precision: str | None = None
    batch_size: int | None = None  # of a process and step
    max_epochs: int | None = None
    accumulate: int = 1
    optimizer: str | None = None
    learning_rate: float | None = None
    seed: int | None = None
    strategy: str | None = None  # Lightning's: DDPStrategy
    processes_per_batch: int = 1  # number of processes that train on the same batch
    eval_every_batches: int | None = None  # None: every epoch, or not known


def declared_directions(metrics: Mapping[str, str], names: MetricNames, parsed: Mapping[str, Target]) -> dict[str, str]:
    """The directions that `metrics=` declares, by the metrics' keys. Raises ConfigError."""
    if not isinstance(metrics, Mapping):
        raise ConfigError(f"metrics={metrics!r}: not directions. Allowed: a dict such as {{'val_loss': 'lower'}}")
    for metric, better in metrics.items():
        if not isinstance(metric, str) or not metric or better not in DIRECTIONS:
            raise ConfigError(
                f"metrics={{{metric!r}: {better!r}}}: not a direction. Allowed: a metric's name, and lower or higher"
            )
    by_key = {names.key(metric): better for metric, better in metrics.items()}
    for key, better in targets.directions_of(parsed).items():
        if by_key.get(key, better) != better:
            raise ConfigError(
                f"metrics={{{key!r}: {by_key[key]!r}}}: the target {targets.text(parsed[key])} implies {better}. Next:"
                " change one of the two"
            )
    return by_key


def checked(options: TrialOptions) -> TrialOptions:
    """The options with each target in its normal form. Raises ConfigError that names the argument."""
    if isinstance(options.runs_dir, os.PathLike):
        options = dataclasses.replace(options, runs_dir=os.fspath(options.runs_dir))
    check_names(options)
    if not isinstance(options.target, Mapping):
        raise ConfigError(f"target={options.target!r}: not targets. Allowed: a dict such as {{'val_acc': 0.9}}")
    parsed: dict[str, Target] = {}
    names = MetricNames()
    for metric, value in options.target.items():
        if not isinstance(metric, str) or not metric:
            raise ConfigError(f"target={metric!r}: not a metric's name. Allowed: a text such as 'val_acc'")
        try:
            parsed[names.key(metric)] = targets.parse(value)
        except ValueError as error:
            raise ConfigError(f"target={{{metric!r}: {value!r}}}: {error}") from None
    check_flag("stop_at_target", options.stop_at_target)
    check_flag("offline", options.offline)
    check_whole("log_every_n_steps", options.log_every_n_steps)
    check_not_below_0("system_metrics_interval_sec", options.system_metrics_interval_sec)
    if options.price_per_hour is not None:
        check_not_below_0("price_per_hour", options.price_per_hour)
    params = checked_params(options.params)
    directions = declared_directions(options.metrics, names, parsed)
    return dataclasses.replace(options, target=parsed, metrics=directions, names=names.key_by_name(), params=params)


def checked_counter(samples: Any) -> Any:
    """The function that counts a batch's samples, or None. Raises ConfigError for anything else."""
    if samples is not None and not callable(samples):
        raise ConfigError(
            f"samples={samples!r}: does not count a batch's samples. Allowed: a function of a batch, or None. Next:"
            " give one, such as samples=lambda batch: len(batch[0])"
        )
    return samples


def check_names(options: TrialOptions) -> None:
    """Check the names of folders, runs, experiments and servers as launch.py does. Raises ConfigError."""
    may_be_none = ("name", "experiment", "uri")
    texts = {key: getattr(options, key) for key in ("name", "dataset", "experiment", "uri", "runs_dir")}
    texts = {key: value for key, value in texts.items() if value is not None or key not in may_be_none}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ConfigError(f"{key}={value!r}: must be a text")
    check_text("", texts)
    if options.uri is not None:
        check_uri(options.uri, "uri")
    check_secrets({key: value for key, value in texts.items() if key != "uri"})
    for key in ("name", "dataset"):
        if key in texts:
            check_name(key, texts[key])
    if options.experiment is not None:
        check_experiment("experiment", options.experiment)
    check_runs_dir(options.runs_dir)


def config_of(options: TrialOptions, setup: TrainingSetup) -> RunConfig:
    """The run's config. Options that are not known have neutral values. Raises ConfigError."""
    if setup.batch_size is not None:
        check_whole("batch_size", setup.batch_size)
    if not isinstance(setup.precision, str | None):
        raise ConfigError(f"precision={setup.precision!r}: must be a text")
    model = ModelConfig(
        name=safe_name(options.name or setup.model),
        workload=f"script:{script.name()}",
        batch_size=setup.batch_size or 0,
        metrics=dict(options.metrics),
        targets={safe_name(options.dataset): dict(options.target)},
        optimizer=OptimizerConfig(lr=setup.learning_rate or 0.0),
    )
    return RunConfig(
        model=model,
        dataset=DatasetConfig(safe_name(options.dataset)),
        precision=PrecisionConfig(
            PRECISIONS.get(setup.precision or "", safe_name(setup.precision or "own")), "", False
        ),
        stack=StackConfig("script"),
        instance=InstanceConfig("none" if options.price_per_hour is None else "given", options.price_per_hour),
        tracking=TrackingConfig(
            options.uri,
            options.experiment or DEFAULT_EXPERIMENT,
            options.offline,
            system_metrics_interval_sec=options.system_metrics_interval_sec,
        ),
        gpus=setup.devices if setup.on_gpu else 0,
        nodes=setup.nodes,
        cpu_processes=1 if setup.on_gpu else setup.devices,
        seed=setup.seed or 0,
        stop_at_target=options.stop_at_target,
        max_epochs=setup.max_epochs,
        log_every_n_steps=options.log_every_n_steps,
        runs_dir=options.runs_dir,
    )


def params_of(options: TrialOptions, setup: TrainingSetup, config: RunConfig) -> dict[str, journal.Scalar]:
    """The params for MLflow. The user's own come last and override ours."""
    world_size = config.world_size()
    global_batch = eval_interval = None
    if setup.batch_size is not None:
        all_processes = setup.batch_size * (world_size // setup.processes_per_batch)  # samples of a forward pass
        global_batch = all_processes * setup.accumulate
        if setup.eval_every_batches is not None:
            eval_interval = all_processes * setup.eval_every_batches
    values: dict[str, journal.Scalar] = {
        "model": config.model.name,
        "dataset": config.dataset.name,
        "precision": config.precision.name,
        "stack": config.stack.name,
        "gpus": config.gpus,
        "nodes": config.nodes,
        "cpu_processes": None if setup.on_gpu else config.cpu_processes,
        "seed": setup.seed,
        "target_metric": ",".join(options.target) or None,
        "target_value": ",".join(map(targets.text, options.target.values())) or None,
        "batch_size": setup.batch_size,
        "global_batch_size": global_batch,
        "accumulate_grad_batches": setup.accumulate if setup.accumulate > 1 else None,
        "strategy": setup.strategy,
        "max_epochs": setup.max_epochs,
        "eval_interval_samples": eval_interval,
        "optimizer/name": setup.optimizer,
        "optimizer/learning_rate": setup.learning_rate,
    }
    return {key: value for key, value in (values | dict(options.params)).items() if value is not None}


def safe_name(name: str) -> str:
    """The name in characters that folders and MLflow allow."""
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).lstrip(".-")[:MAX_NAME] or "own"


def script_seed() -> int | None:
    """The seed of Lightning's `seed_everything`, else PyTorch's; None if neither was seeded."""
    text = os.environ.get("PL_GLOBAL_SEED", "")
    if text.isdigit():
        return int(text)
    seed = torch.initial_seed()
    return seed if seed < MAX_SEED else None
