"""Refuses runs that cannot run here, before anything is trained. Needs no torch, so a refusal takes a second."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from conf import instance_prices
from conf.launch_options import InstanceConfig
from conf.schema import LR_SCALING, ConfigError, PrecisionConfig, RunConfig
from tracking.base.installation import LAUNCH
from tracking.request.batch_checks import (
    check_device_batch,
    check_groups,
    check_tokens,
    with_batch,
    with_values_by_gpus,
)
from tracking.request.closed_rules import check_target_set
from tracking.request.evaluation_checks import check_best, check_directions, check_evaluation, check_target
from tracking.request.name_checks import check_names, check_numbers, check_secrets, check_text
from tracking.request.node_options import VisibleGpu, check_nodes, resolve_gpus, resolve_jobs_at_once
from tracking.request.output_checks import check_alert, check_profile, check_save_model
from tracking.request.program_command import check_label, check_program, check_seed
from tracking.request.search_options import check_search
from tracking.request.strategy_checks import check_memory, check_strategy
from tracking.request.study_checks import check_data, check_study

HIGHEST_SEED = 2**32 - 1


def check_run(config: RunConfig, gpus: Sequence[VisibleGpu], overrides: Sequence[str] | None = None) -> RunConfig:
    """The completed config, with `gpus` as a number. Raises ConfigError if it cannot run on these GPUs.

    `overrides` are the words of the command line; without them, no row of `model.by_gpus` is used.
    """
    values = dataclasses.asdict(config)
    check_text("", values)
    check_numbers("", values)
    check_secrets(values)
    check_names(config)
    config = dataclasses.replace(
        config,
        gpus=resolve_gpus(config.gpus, gpus, config.cpu_processes, config.cluster.kind != "none"),
        checkpoint_every_epochs=resolve_checkpoints(config),
    )
    config = dataclasses.replace(config, instance=resolve_price(config))
    config = with_batch(with_values_by_gpus(config, overrides))
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


def resolve_price(config: RunConfig) -> InstanceConfig:
    """The instance. If price_per_hour or price_per_gpu_hour is given, it has this price, no region and no date.

    price_per_gpu_hour charges only for the GPUs that the run uses. Raises ConfigError.
    """
    max_gpus = instance_prices.num_gpus(config.instance.name)
    if max_gpus is not None and config.num_gpus() > max_gpus:
        raise ConfigError(
            f"gpus={config.num_gpus()}: instance={config.instance.name} has {max_gpus} GPUs. Next: give"
            f" gpus={max_gpus}, or another instance"
        )
    price, key, per_gpu = config.price_per_hour, "price_per_hour", config.price_per_gpu_hour
    if per_gpu is not None:
        if price is not None:
            raise ConfigError(
                f"price_per_gpu_hour={per_gpu}: price_per_hour={price} is given too. Next: leave one of them out"
            )
        if not config.num_gpus():
            raise ConfigError(f"price_per_gpu_hour={per_gpu}: gpus=0 uses no GPU. Next: give price_per_hour")
        price, key = per_gpu * config.num_gpus(), "price_per_gpu_hour"
    if price is None:
        return config.instance
    return dataclasses.replace(config.instance, price_per_hour=price, region="", date="", source=key)


def resolve_checkpoints(config: RunConfig) -> int | None:
    """checkpoint_every_epochs. With cluster.max_requeues the default is 1, so that a requeued run can continue."""
    epochs = config.checkpoint_every_epochs
    by_steps = config.checkpoint_every_steps is not None
    if epochs is not None or by_steps or not config.cluster.max_requeues or config.is_program():
        return epochs
    return None if config.max_epochs == 1 else 1


def check_counts(config: RunConfig) -> None:
    positive = (
        "cpu_processes", "batch_size", "max_epochs", "limit_train_batches", "log_every_n_steps",
        "checkpoint_every_epochs", "checkpoint_every_steps", "timeout_sec",
    )  # fmt: skip
    for key in positive:
        value = getattr(config, key)
        if value is not None and value <= 0:
            raise ConfigError(f"{key}={value}: must be above 0")
    check_groups(config.device_batch_size(), config.model.group_size)
    check_tokens(config)
    check_nodes(config)
    if config.on_gpu() and config.cpu_processes != 1:
        raise ConfigError(
            f"cpu_processes={config.cpu_processes}: has no effect with gpus={config.gpus}. Next: give gpus=0 for the"
            " CPU"
        )
    if not 0 <= config.seed <= HIGHEST_SEED:
        raise ConfigError(f"seed={config.seed}: out of range. Allowed: 0 to {HIGHEST_SEED}. Next: give seed=1")


# By Lightning's precision: our names of the precisions in which matrix products may run.
PRODUCTS = {
    "32-true": ("fp32", "tf32"),
    "bf16-mixed": ("bf16", "fp8"),
    "bf16-true": ("bf16", "fp8"),
    "16-mixed": ("fp16",),
    "16-true": ("fp16",),
}
NOT_ON_CPUS = ("tf32", "fp8")  # no CPU multiplies in these


def check_precision_name(precision: PrecisionConfig) -> None:
    """Raise ConfigError if matrix products would run in another precision than the name says."""
    if precision.trainer not in PRODUCTS:
        raise ConfigError(f"precision.trainer={precision.trainer}: is unknown. Allowed: {', '.join(PRODUCTS)}")
    names = PRODUCTS[precision.trainer]
    if precision.trainer == "32-true":
        names = ("tf32",) if precision.tf32 else ("fp32",)
    if precision.name not in names:
        raise ConfigError(
            f"precision.name={precision.name}: matrix products would run in {names[0]}, since precision.trainer="
            f"{precision.trainer} and precision.tf32={str(precision.tf32).lower()}. Next: give precision={names[0]}"
            " alone"
        )


def check_precision(config: RunConfig, gpus: Sequence[VisibleGpu]) -> None:
    precision = config.precision
    if not config.is_program():  # A program chooses its precision by itself.
        check_precision_name(precision)
    if precision.name == "fp8" and not config.model.fp8:
        raise ConfigError(
            f"precision=fp8: model={config.model.name} has no layers for it (fp8: true in its YAML). Next: give"
            " precision=bf16"
        )
    if not config.on_gpu():
        if precision.needs_gpu or precision.name in NOT_ON_CPUS:
            raise ConfigError(
                f"precision={precision.name}: needs a GPU, but gpus=0. Next: give gpus=1, or precision=fp32 or bf16"
            )
        return
    for gpu in config.chosen(gpus):
        if gpu.compute_capability is not None and gpu.compute_capability < precision.min_compute_capability:
            raise ConfigError(
                f"precision={precision.name}: needs compute capability {precision.min_compute_capability}, but GPU"
                f" {gpu.index} ({gpu.name}) has {gpu.compute_capability}. Next: give fp32, or fp16 from 7.0 on"
                + (", or bf16 from 8.0 on" if precision.name == "fp8" else "")
            )


def check_optimizer(config: RunConfig) -> None:
    optimizer = config.model.optimizer
    if optimizer.lr_scaling not in LR_SCALING:
        raise ConfigError(
            f"model.optimizer.lr_scaling={optimizer.lr_scaling}: no such rule. Allowed: {', '.join(LR_SCALING)}"
        )
    if optimizer.lr <= 0:
        raise ConfigError(f"model.optimizer.lr={optimizer.lr}: must be above 0")
    if optimizer.weight_decay < 0:
        raise ConfigError(f"model.optimizer.weight_decay={optimizer.weight_decay}: must be 0 or more")
    if (LR_SCALING[optimizer.lr_scaling] > 0) != (optimizer.base_batch_size > 0):
        raise ConfigError(
            f"model.optimizer.base_batch_size={optimizer.base_batch_size}: does not fit lr_scaling="
            f"{optimizer.lr_scaling}. linear and sqrt need the global batch size that lr was chosen for; none does not"
            " use it. Next: set both or neither"
        )


def check_dataset(config: RunConfig) -> None:
    allowed = sorted(config.model.targets)
    if config.dataset.name not in allowed:
        raise ConfigError(
            f"dataset={config.dataset.name}: model={config.model.name} cannot train on it. Allowed:"
            f" {', '.join(allowed)}"
        )
    if config.dataset.max_image_pixels is not None and config.dataset.max_image_pixels <= 0:
        raise ConfigError(f"dataset.max_image_pixels={config.dataset.max_image_pixels}: must be above 0")


def check_surroundings(config: RunConfig) -> None:
    if config.instance.price_per_hour is not None and config.instance.price_per_hour < 0:
        raise ConfigError(f"price_per_hour={config.instance.price_per_hour}: must not be negative")
    if (carbon := config.instance.carbon_g_per_kwh) is not None and carbon < 0:
        raise ConfigError(f"instance.carbon_g_per_kwh={carbon:g}: must not be negative")
    if config.instance.currency != "USD":
        raise ConfigError(
            f"instance.currency={config.instance.currency}: costs are reported in USD. Next: convert price_per_hour,"
            " and note the rate in instance.source"
        )
    if config.tracking.system_metrics_interval_sec < 0:
        raise ConfigError(
            f"tracking.system_metrics_interval_sec={config.tracking.system_metrics_interval_sec}: must be 0 (off) or"
            " more"
        )
    if config.tracking.upload_wait_sec < 0:
        raise ConfigError(f"tracking.upload_wait_sec={config.tracking.upload_wait_sec}: must be 0 or more")
    if ":" not in config.model.workload:
        raise ConfigError(f"model.workload={config.model.workload}: not a workload. Allowed: package.module:NAME")


def check_job(
    config: RunConfig, overrides: Sequence[str], params: Iterable[str], gpus: Sequence[VisibleGpu]
) -> RunConfig:
    """The completed config of a job, checked by `check_run` and as a part of its study or search. Raises ConfigError.

    The refusal of a study's job says how to run a smaller study.
    """
    check_study(config.study, overrides, params)
    check_data(config)
    try:
        check_device_batch(config)
        checked = check_run(config, gpus, overrides)
        check_seed(config, overrides)
        check_label(config, params)
        check_search(checked, overrides, gpus)
        checked.sweep.jobs_at_once = resolve_jobs_at_once(checked, overrides, gpus)
        return checked
    except ConfigError as error:
        if not config.study.smaller:
            raise
        name = config.study.name
        raise ConfigError(
            f"{error}. study={name}: choose values that can run here, such as seed=1; on two CPU cores:"
            f" {LAUNCH} -m +study={name} {config.study.smaller}"
        ) from error
