"""Rules of MLPerf's closed division for runs with a target set, checked before the training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from conf.schema import ConfigError, RunConfig

# By model: the dataset of its targets, and a number. The learning rate is a multiple of that number (None: any rate).
# Source: github.com/mlcommons/logging, mlperf_logging/compliance_checker/training_0.7.0.
CLOSED_DATA: Mapping[str, tuple[str, float | None]] = {
    "resnet50": ("imagenet", 0.001),
    "ssd": ("coco", None),
    "maskrcnn": ("coco", 0.02),
    "transformer": ("wmt", None),
    "gnmt": ("wmt", None),
}
# The hyperparameters that define the benchmark's network.
NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "resnet50": {"depth": 50},
    "ssd": {"backbone": "resnet34", "width": 1.0},
    "maskrcnn": {"backbone": "resnet50", "channels": 256},
    "transformer": {"layers": 6, "width": 1024, "hidden": 4096, "heads": 16, "epsilon": 1e-9},
    "gnmt": {"layers": 4, "width": 1024},
}
END_LEARNING_RATE = 1e-4
BASE_WEIGHT_DECAY = 1e-4
PROPOSALS = 1000


def check_target_set(config: RunConfig) -> None:
    """Raise ConfigError if the run breaks a rule of the closed division of its target set."""
    if not config.target_set:
        return
    name = f"target_set={config.target_set}"
    if config.model.name not in CLOSED_DATA:
        raise ConfigError(f"{name}: has no targets for model={config.model.name}. Allowed: {', '.join(CLOSED_DATA)}")
    dataset, lr_multiple = CLOSED_DATA[config.model.name]
    if config.dataset.name != dataset:
        raise ConfigError(
            f"{name}: the targets of model={config.model.name} are on {dataset}, not {config.dataset.name}. Next: give"
            f" dataset={dataset}, or leave the target set out"
        )
    if lr_multiple is not None and not is_whole(config.learning_rate() / lr_multiple):
        raise ConfigError(
            f"{name}: the learning rate after scaling is {config.learning_rate():g}. Allowed: a multiple of"
            f" {lr_multiple:g}. Next: give another batch_size or model.optimizer.lr"
        )
    for key, value, is_allowed, allowed in rules(config):
        if not is_allowed:
            raise ConfigError(
                f"{key}={value}: breaks the rules of {name}. Allowed: {allowed}. Next: give that, or leave the target"
                " set out"
            )


def rules(config: RunConfig) -> list[tuple[str, Any, bool, str]]:
    """For each hyperparameter that the rules limit: key, value, whether it is allowed, and what is allowed."""
    hparams, prefix = config.model.hparams, "model.hparams."
    network = NETWORKS[config.model.name]
    limits = [(prefix + key, hparams.get(key), hparams.get(key) == value, str(value)) for key, value in network.items()]
    if config.model.name in ("transformer", "gnmt"):
        return limits
    if config.model.name == "resnet50":
        decay, end = config.model.optimizer.weight_decay, hparams.get("end_learning_rate")
        power = hparams.get("decay_power")
        is_power_of_2 = decay > 0 and is_whole(math.log2(decay / BASE_WEIGHT_DECAY))
        return [
            *limits,
            ("model.optimizer.weight_decay", decay, is_power_of_2, f"{BASE_WEIGHT_DECAY} times a power of 2"),
            (f"{prefix}end_learning_rate", end, end == END_LEARNING_RATE, str(END_LEARNING_RATE)),
            (f"{prefix}decay_power", power, power is not None, "a number"),
        ]
    if config.model.name == "ssd":
        epochs, steps = hparams["decay_epochs"], hparams["warmup_steps"]
        are_multiples = len(epochs) == 2 and all(
            is_whole(epoch / published * 10) for epoch, published in zip(epochs, (40, 50), strict=True)
        )
        return [
            *limits,
            (f"{prefix}decay_epochs", epochs, are_multiples, "two epochs: multiples of 4 and of 5"),
            (f"{prefix}warmup_steps", steps, steps >= 1, "1 or more"),
        ]
    epochs, proposals = hparams["decay_epochs"], hparams["num_proposals"]
    return [
        *limits,
        (f"{prefix}decay_epochs", epochs, len(epochs) == 2, "two epochs"),
        (f"{prefix}num_proposals", proposals, is_whole(proposals / PROPOSALS), f"a multiple of {PROPOSALS:,}"),
    ]


def is_whole(value: float) -> bool:
    """Whether a value is an integer within the tolerance of MLPerf's log checker."""
    return abs(round(value) - value) < 1e-5
