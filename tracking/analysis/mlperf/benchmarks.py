"""The MLPerf benchmark of each of our workloads, with MLPerf's names for its options.

The keys are those of mlperf_logging.mllog.constants, version 0.7 of the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from conf.schema import RunConfig

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """One of MLPerf's benchmarks.

    `hyperparameters(config, steps)` gives the keys of the closed division for a run with `steps` steps an epoch; None
    marks a value that the configuration does not hold. `accuracy(metrics)` gives the value of an evaluation, or None.
    `metadata` holds further metadata by key.
    """

    name: str
    hyperparameters: Callable[[RunConfig, int], Values]
    accuracy: Callable[[Mapping[str, float]], Any]
    metadata: Mapping[str, Values] = field(default_factory=dict)


def benchmark_of(config: RunConfig) -> Benchmark | None:
    """The benchmark of a run's workload, or None."""
    return BENCHMARKS.get(config.model.workload)


def _resnet(config: RunConfig, steps: int) -> Values:
    hparams = config.model.hparams
    power = hparams.get("decay_power")
    decaying_epochs = hparams["epochs"] - hparams.get("warmup_epochs", 0)
    return {
        "opt_name": "sgd",
        "sgd_opt_base_learning_rate": config.learning_rate(),
        "sgd_opt_end_learning_rate": hparams.get("end_learning_rate"),
        "sgd_opt_learning_rate_decay_poly_power": power,
        "sgd_opt_learning_rate_decay_steps": None if power is None else round(decaying_epochs * steps),
        "sgd_opt_weight_decay": config.model.optimizer.weight_decay,
        "sgd_opt_momentum": hparams.get("momentum"),
        "model_bn_span": config.device_batch_size(),  # each device computes its own statistics
        "opt_learning_rate_warmup_epochs": hparams.get("warmup_epochs"),
    }


def _ssd(config: RunConfig, steps: int) -> Values:
    return {
        "opt_weight_decay": config.model.optimizer.weight_decay,
        "opt_learning_rate_decay_boundary_epochs": list(config.model.hparams["decay_epochs"]),
        "model_bn_span": config.device_batch_size(),
        "max_samples": 1,  # each tried crop draws its minimum overlap anew
    } | _warm_up(config)


def _mask_rcnn(config: RunConfig, steps: int) -> Values:
    hparams = config.model.hparams
    return {
        "opt_learning_rate_decay_factor": 0.1,
        "opt_learning_rate_decay_steps": [round(epoch * steps) for epoch in hparams["decay_epochs"]],
        "num_image_candidates": hparams.get("num_proposals"),
        "min_image_size": hparams.get("min_size"),
        "max_image_size": hparams.get("max_size"),
    } | _warm_up(config)


def _warm_up(config: RunConfig) -> dict[str, Any]:
    """The learning rate, and its share in the first step of a warm-up (trainers.models.schedule)."""
    steps = config.model.hparams.get("warmup_steps")
    return {
        "opt_base_learning_rate": config.learning_rate(),
        "opt_learning_rate_warmup_steps": steps,
        "opt_learning_rate_warmup_factor": None if steps is None else 1 / (steps + 1),
    }


def _transformer(config: RunConfig, steps: int) -> Values:
    hparams = config.model.hparams
    betas = hparams.get("betas") or [None, None]
    return {
        "opt_name": "adam",
        "opt_base_learning_rate": config.learning_rate(),
        "opt_learning_rate_warmup_steps": hparams.get("warmup_steps"),
        "opt_adam_beta_1": betas[0],
        "opt_adam_beta_2": betas[1],
        "opt_adam_epsilon": hparams.get("epsilon"),
        "max_sequence_length": hparams.get("max_length"),
    }


def _gnmt(config: RunConfig, steps: int) -> Values:
    hparams = config.model.hparams
    values: dict[str, Any] = {
        "opt_base_learning_rate": config.learning_rate(),
        "opt_learning_rate_alt_decay_func": True,
        "opt_learning_rate_decay_factor": 0.5,
        "opt_learning_rate_alt_warmup_func": True,
        "opt_learning_rate_warmup_steps": hparams.get("warmup_steps"),
        "max_sequence_length": hparams.get("max_length"),
    }
    num_decays, remain = hparams.get("num_decays"), hparams.get("remain")
    if num_decays and remain is not None:  # as in trainers.models.gnmt.module
        num_steps = hparams["epochs"] * steps
        values |= {
            "opt_learning_rate_decay_steps": num_decays,
            "opt_learning_rate_remain_steps": int(num_steps * remain),
            "opt_learning_rate_decay_interval": max(1, (num_steps - int(num_steps * remain)) // num_decays),
        }
    return values


def _minigo(config: RunConfig, steps: int) -> Values:
    """The keys of version 0.7, then those of 0.6 (from opt_* on). Every generation plays the same number of games."""
    hparams, rate = config.model.hparams, config.learning_rate()
    boundaries, games = list(hparams.get("decay_steps") or ()), hparams.get("games")
    rates = [rate / 10**number for number in range(len(boundaries) + 1)]
    return {
        "train_batch_size": config.samples_per_step(),
        "lr_boundaries": boundaries,
        "lr_rates": rates,
        "min_selfplay_games_per_generation": games,
        "actual_selfplay_games_per_generation": games,
        "opt_learning_rate_decay_boundary_steps": boundaries,
        "opt_base_learning_rate": rates,  # 0.6's checker wants a list
        "virtual_losses": hparams.get("leaves"),
        "num_readouts": hparams.get("readouts"),
        "resign_threshold": hparams.get("resign"),
        "gating_win_rate": hparams.get("gate"),
        "eval_games": hparams.get("eval_games"),
    }


def _right_or_won(metrics: Mapping[str, float]) -> Any:
    """The share of professionals' moves predicted, or of games won against a network, whichever a run measures."""
    return metrics.get("pro_moves", metrics.get("wins_frozen"))


def _fraction(metrics: Mapping[str, float]) -> Any:
    """BLEU from 0 to 1, as in MLPerf."""
    return metrics["bleu"] / 100 if "bleu" in metrics else None


def _boxes_and_masks(metrics: Mapping[str, float]) -> Any:
    if not {"box_map", "mask_map"} <= metrics.keys():
        return None
    return {"BBOX": metrics["box_map"], "SEGM": metrics["mask_map"]}


LONGER = {"max_sequence_length": {"method": "discard"}}  # longer sentences are discarded
BENCHMARKS: Mapping[str, Benchmark] = {
    "trainers.models.resnet:WORKLOAD": Benchmark("resnet", _resnet, lambda metrics: metrics.get("accuracy")),
    "trainers.models.ssd:WORKLOAD": Benchmark("ssd", _ssd, lambda metrics: metrics.get("box_map")),
    "trainers.models.maskrcnn:WORKLOAD": Benchmark("maskrcnn", _mask_rcnn, _boxes_and_masks),
    "trainers.models.transformer:WORKLOAD": Benchmark("transformer", _transformer, _fraction, LONGER),
    "trainers.models.minigo:WORKLOAD": Benchmark("minigo", _minigo, _right_or_won),
    "trainers.models.gnmt:WORKLOAD": Benchmark("gnmt", _gnmt, _fraction, LONGER),
}
