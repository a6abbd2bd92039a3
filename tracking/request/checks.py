"""Refuses, before anything is trained, what cannot be run here. Needs no torch, so a refusal takes a second."""

from __future__ import annotations

import dataclasses
import math
import shlex
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

from conf import instance_prices
from conf.launch_options import AlertConfig, InstanceConfig, ProfileConfig
from conf.schema import LR_SCALING, SAVE_MODEL, ConfigError, RunConfig
from tracking.base.installation import LAUNCH
from tracking.request.batch_checks import check_groups, check_whose_batch, with_batch
from tracking.request.closed_rules import check_target_set
from tracking.request.evaluation_checks import check_evaluation
from tracking.request.gpu_memory import check_memory
from tracking.request.metric_checks import check_best, check_directions, check_target
from tracking.request.name_checks import check_names, check_secrets, check_text
from tracking.request.node_options import VisibleGpu, check_nodes, resolve_at_once, resolve_gpus
from tracking.request.program_command import check_program, check_seed
from tracking.request.search_options import check_search
from tracking.request.strategy_checks import check_strategy
from tracking.request.study_checks import check_study


def check_run(config: RunConfig, gpus: Sequence[VisibleGpu]) -> RunConfig:
    """Return the config with `gpus` as a number. Raises ConfigError for what cannot be run on these GPUs."""
    values = dataclasses.asdict(config)
    check_text("", values)
    check_finite("", values)
    check_secrets("", values)
    check_names(config)
    config = dataclasses.replace(
        config,
        gpus=resolve_gpus(config.gpus, gpus, config.cpu_processes, config.cluster.kind != "none"),
        checkpoint_every_epochs=resolve_checkpoints(config),
    )
    config = dataclasses.replace(config, instance=resolve_price(config))
    config = with_batch(config)
    check_counts(config)
    check_program(config)
    check_evaluation(config)
    check_precision(config, gpus)
    check_strategy(config)
    check_memory(config, gpus)
    check_optimizer(config)
    check_dataset(config)
    check_directions(config)
    check_target(config)
    check_target_set(config)
    check_save_model(config)
    check_best(config)
    check_profile(config)
    check_alert(config.alert)
    check_surroundings(config)
    return config


def check_finite(prefix: str, value: Any) -> None:
    """Hydra reads the words nan and inf as numbers; nothing can be done with them as an option."""
    if isinstance(value, dict):
        for key, inner in value.items():
            check_finite(f"{prefix}.{key}" if prefix else key, inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{prefix}={value}: must be a finite number; put quotes around it if it is a word")


def resolve_price(config: RunConfig) -> InstanceConfig:
    """The instance with the price that was given for it; where and when its own was read then says nothing.

    By a price of a GPU, a run pays for the GPUs of a node that it uses.
    """
    there = instance_prices.num_gpus(config.instance.name)
    if there is not None and config.num_gpus() > there:
        raise ConfigError(
            f"instance={config.instance.name} gpus={config.num_gpus()}: a node of it has {there}; ask for that many, or"
            " name another instance"
        )
    price, key, per_gpu = config.price_per_hour, "price_per_hour", config.price_per_gpu_hour
    if per_gpu is not None:
        if price is not None or not config.num_gpus():
            why = f"price_per_hour={price} is given, too; leave one out" if price is not None else "gpus=0 uses none"
            raise ConfigError(f"price_per_gpu_hour={per_gpu}: {why}")
        price, key = per_gpu * config.num_gpus(), "price_per_gpu_hour"
    if price is None:
        return config.instance
    return dataclasses.replace(config.instance, price_per_hour=price, region="", date="", source=key)


def resolve_checkpoints(config: RunConfig) -> int | None:
    """A run that may be queued again has something to go on from, unless told otherwise."""
    asked = config.checkpoint_every_epochs
    by_steps = config.checkpoint_every_steps is not None
    if asked is not None or by_steps or not config.cluster.max_requeues or config.is_program():
        return asked
    return None if config.max_epochs == 1 else 1


def check_counts(config: RunConfig) -> None:
    above_zero = (
        "cpu_processes", "batch_size", "max_epochs", "limit_train_batches", "log_every_n_steps",
        "checkpoint_every_epochs", "checkpoint_every_steps", "timeout_sec",
    )  # fmt: skip
    for key in above_zero:
        value = getattr(config, key)
        if value is not None and value <= 0:
            raise ConfigError(f"{key}={value}: must be above 0")
    check_groups(config.device_batch_size(), config.model.group_size)
    check_nodes(config)
    if config.on_gpu() and config.cpu_processes != 1:
        raise ConfigError(
            f"cpu_processes={config.cpu_processes}: has no effect with gpus={config.gpus}; give gpus=0 for the CPU"
        )
    if not 0 <= config.seed < 2**32:
        raise ConfigError(f"seed={config.seed}: must be from 0 to {2**32 - 1}")


def check_precision(config: RunConfig, gpus: Sequence[VisibleGpu]) -> None:
    precision = config.precision
    if precision.name == "fp8" and not config.model.fp8:
        raise ConfigError(f"precision=fp8: model={config.model.name} has no layers for it (fp8: true); give bf16")
    if not config.on_gpu():
        if precision.needs_gpu:
            raise ConfigError(
                f"precision={precision.name}: this CPU cannot train in it; on the CPU give fp32 or bf16, else gpus=1"
            )
        return
    for gpu in config.chosen(gpus):
        if gpu.compute_capability is not None and gpu.compute_capability < precision.min_compute_capability:
            raise ConfigError(
                f"precision={precision.name}: needs compute capability {precision.min_compute_capability}, and GPU"
                f" {gpu.index} ({gpu.name}) has {gpu.compute_capability}; give fp32, or fp16 from 7.0 on"
                + (", or bf16 from 8.0 on" if precision.name == "fp8" else "")
            )


def check_optimizer(config: RunConfig) -> None:
    optimizer = config.model.optimizer
    if optimizer.lr_scaling not in LR_SCALING:
        raise ConfigError(f"model.optimizer.lr_scaling={optimizer.lr_scaling}: allowed: {', '.join(LR_SCALING)}")
    if optimizer.lr <= 0:
        raise ConfigError(f"model.optimizer.lr={optimizer.lr}: must be above 0")
    if (LR_SCALING[optimizer.lr_scaling] > 0) != (optimizer.base_batch_size > 0):
        raise ConfigError(
            f"model.optimizer.base_batch_size={optimizer.base_batch_size}: lr_scaling=linear and sqrt need the global"
            " batch size that lr was chosen for, and lr_scaling=none does not use it; set both or neither"
        )


def check_dataset(config: RunConfig) -> None:
    known = sorted(config.model.targets)
    if config.dataset.name not in known:
        raise ConfigError(f"dataset={config.dataset.name}: model={config.model.name} is trained on: {', '.join(known)}")
    if config.dataset.max_image_pixels is not None and config.dataset.max_image_pixels <= 0:
        raise ConfigError(f"dataset.max_image_pixels={config.dataset.max_image_pixels}: must be above 0")


def check_surroundings(config: RunConfig) -> None:
    if config.instance.price_per_hour is not None and config.instance.price_per_hour < 0:
        raise ConfigError(f"price_per_hour={config.instance.price_per_hour}: must not be negative")
    if (grams := config.instance.carbon_g_per_kwh) is not None and grams < 0:
        raise ConfigError(f"instance.carbon_g_per_kwh={grams:g}: must not be negative")
    if config.instance.currency != "USD":
        raise ConfigError(
            f"instance.currency={config.instance.currency}: costs are reported in USD; convert price_per_hour, and say"
            " so in instance.source"
        )
    if config.tracking.system_metrics_interval_sec < 0:
        raise ConfigError("tracking.system_metrics_interval_sec: must be 0 (off) or more")
    if config.tracking.upload_wait_sec < 0:
        raise ConfigError(f"tracking.upload_wait_sec={config.tracking.upload_wait_sec}: must be 0 or more")
    if ":" not in config.model.workload:
        raise ConfigError(f"model.workload={config.model.workload}: give package.module:NAME")


def check_save_model(config: RunConfig) -> None:
    if config.save_model not in SAVE_MODEL:
        raise ConfigError(f"save_model={config.save_model}: allowed: {', '.join(SAVE_MODEL)}")
    if config.tracking.upload_model and config.save_model == "none":
        raise ConfigError(
            "tracking.upload_model=true: has no effect with save_model=none; give save_model=final or save_model=best"
        )
    if config.log_model and not config.model.exportable:
        raise ConfigError(
            f"log_model=true: model={config.model.name} cannot be exported, as its YAML says (exportable: false); keep"
            " the weights alone with save_model=final tracking.upload_model=true"
        )
    if config.register_model is not None and not config.log_model:
        raise ConfigError(
            f"register_model={config.register_model}: registers the model that log_model=true logs; give both, or leave"
            " register_model out"
        )


def check_profile(config: RunConfig) -> None:
    """Raise ConfigError where nothing could be traced as asked, or nothing would read what was asked."""
    profile = config.profile
    if profile.steps < 0:
        raise ConfigError(f"profile.steps={profile.steps}: must be 0 (no profile) or more; profile=true is 20")
    if profile.trace_megabytes <= 0:
        raise ConfigError(f"profile.trace_megabytes={profile.trace_megabytes:g}: must be above 0")
    for key in ("seed", "trace_megabytes"):
        value = getattr(profile, key)
        if not profile.steps and value != getattr(ProfileConfig, key):
            raise ConfigError(f"profile.{key}={value}: has no effect without profile=true; give both, or neither")
    if profile.nvtx and (config.is_program() or not config.on_gpu()):
        raise ConfigError(
            "profile.nvtx=true: names ranges of a workload's training on GPUs; give gpus=1, or leave it out"
        )
    if profile.steps and config.is_program():
        raise ConfigError(f"profile.steps={profile.steps}: a program's steps are its own to trace; leave it out")


def check_alert(alert: AlertConfig) -> None:
    """Raise ConfigError for a command that could not be started when it is needed."""
    if alert.timeout_sec <= 0:
        raise ConfigError(f"alert.timeout_sec={alert.timeout_sec:g}: must be above 0")
    if alert.command is None:
        if alert.timeout_sec != AlertConfig.timeout_sec:
            raise ConfigError(f"alert.timeout_sec={alert.timeout_sec:g}: has no effect without alert.command")
        return
    try:
        words = shlex.split(alert.command)
    except ValueError as error:
        raise ConfigError(f"alert.command={alert.command}: {error}; close the quotes") from None
    if not words or shutil.which(words[0]) is None:
        raise ConfigError(
            f"alert.command={alert.command}: there is no such program here; give one on the PATH, or its path"
        )


def check_job(
    config: RunConfig, overrides: Sequence[str], params: Iterable[str], gpus: Sequence[VisibleGpu]
) -> RunConfig:
    """Check a job as `check_run` does, and that a study is run as one.

    The refusal of a study's job says how to cut the study down.
    """
    check_study(config.study, overrides, params)
    try:
        check_whose_batch(config)
        checked = check_run(config, gpus)
        check_seed(config, overrides)
        check_search(checked, overrides)
        checked.sweep.jobs_at_once = resolve_at_once(checked, overrides, gpus)
        return checked
    except ConfigError as error:
        if not config.study.smaller:
            raise
        name = config.study.name
        raise ConfigError(
            f"{error}. study={name}: leave of its grid what can run here, as seed=1 leaves one seed; on two CPU cores:"
            f" {LAUNCH} -m +study={name} {config.study.smaller}"
        ) from error
