"""Whatever limits a run of ours, the options that the advice names exist, are not so already, and are not refused."""

from __future__ import annotations

import copy
import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed
from tracking.base.time_parts import CAUSES
from tracking.jobs.plan import run_setup
from tracking.measure.bottleneck.advice import first_try
from tracking.measure.bottleneck.run_options import RunOptions
from tracking.request import checks
from trainers.workload import load_workload

WORKLOADS = {
    "vgg": "digits", "resnet50": "shapes", "ssd": "coco", "maskrcnn": "shapes", "ncf": "ratings", "gnmt": "numbers",
    "transformer": "wmt", "gpt": "grammar", "llama": "synthetic", "minigo": "selfplay",
}  # fmt: skip
PLACES: list[dict[str, Any]] = [{"gpus": 0}, {"gpus": 0, "cpu_processes": 2}, {"gpus": 1}, {"gpus": 4}]
SETTINGS: list[dict[str, Any]] = [
    {}, {"compile": False}, {"compile": True}, {"precision": "bf16"}, {"precision": "fp8"},
    {"precision": "tf32"}, {"dataset.num_threads": 1}, {"dataset.decode": "cpu"}, {"eval_every_steps": 500},
    {"eval_every_samples": 5000}, {"eval_at_epochs": [2, 4]}, {"checkpoint_every_steps": 10},
    {"checkpoint_every_epochs": 1}, {"profile.steps": 20}, {"strategy": "fsdp"}, {"batch_size": 40},
    {"global_batch_size": 4 * 65536}, {"global_batch_size": 4 * 3 * 65536, "model.hparams.micro_batch_size": 65536},
    {"model.hparams.games_at_once": 8}, {"model.hparams.graph_steps": True},
]  # fmt: skip
MEASURED: list[dict[str, Any]] = [
    {}, {"memory_percent": 21.0}, {"memory_percent": 60.0}, {"step_sec": 0.001, "num_evaluations": 1, "cores": 2},
    {"memory_percent": 2.0, "epoch_samples": 2**20, "cores": 64},
]  # fmt: skip
PLAYED = ("selfplay", "gate")
ON_CPU, ON_GPU = (
    ("update", "processor", "neighbours"),
    ("host", "dram", "tensor", "fp32", "power", "kernels", "latency"),
)
BATCHES = ("batch_size", "global_batch_size")
NAMED = re.compile(
    r"\b((?:model\.hparams\.|dataset\.)\w+|profile\.steps|(?:global_)?batch_size|(?:eval|checkpoint)_(?:every|at)_\w+"
    r"|precision|compile|gpus|cpu_processes|strategy)\b(?:=(\w+))?"
)


def value_of(config: RunConfig, key: str) -> Any:
    """The value of an option; an option that does not exist raises AttributeError or KeyError."""
    value: Any = config
    for name in key.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


def with_values(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """A copy with other values of options."""
    config = copy.deepcopy(config)
    for key, value in values.items():
        if key == "precision":
            config.precision = composed([f"precision={value}"]).precision
            continue
        assert not key.startswith("model.hparams.") or key.rpartition(".")[2] in config.model.hparams
        folder, _, name = key.rpartition(".")
        parent = value_of(config, folder) if folder else config
        parent.update({name: value}) if isinstance(parent, dict) else setattr(parent, name, value)
    return config


def runs(model: str) -> Iterator[tuple[RunConfig, RunConfig]]:
    """Every run of a model that the checks let through, as it was asked for and as it was checked."""
    plain = composed([f"model={model}", f"dataset={WORKLOADS[model]}"])
    for place, setting in itertools.product(PLACES, SETTINGS):
        if any(key.startswith("model.hparams.") and key[14:] not in plain.model.hparams for key in setting):
            continue
        asked = with_values(plain, {**place, **setting})
        try:
            checks.check_device_batch(asked)
            yield asked, checks.check_run(asked, EIGHT_GPUS)
        except ConfigError:
            continue


def causes(config: RunConfig) -> list[str]:
    """The limits that such a run can have."""
    impossible = {*(ON_CPU if config.on_gpu() else ON_GPU), *(() if config.model.name == "minigo" else PLAYED)}
    return [cause for cause in CAUSES if cause not in impossible]


def other(config: RunConfig, key: str, text: str) -> Any:
    """The value that the advice gives, or a larger one than that of the run, as the advice says."""
    if text:
        return {"true": True, "false": False}.get(text, int(text) if text.isdigit() else text)
    if key == "model.hparams.micro_batch_size":
        return config.device_batch_size()  # It is larger, and every batch is a multiple of itself.
    if key == "eval_at_epochs":
        return [2]
    intervals = config.evaluated()
    special = {
        "batch_size": config.device_batch_size(), "global_batch_size": config.samples_per_step(),
        "eval_every_steps": intervals.every_steps, "eval_every_samples": intervals.every_samples,
    }  # fmt: skip
    present = special[key] if key in special else value_of(config, key)
    assert present, f"{key} has no value that could be larger"
    return 2 * present


def check(advice: str, asked: RunConfig, checked: RunConfig, tried: set[str]) -> None:
    """Fail where a run cannot do what it is told to. What it has `tried` is not tried again."""
    named = {key: other(checked, key, text) for key, text in NAMED.findall(advice)}
    together = named.pop("cpu_processes", None)
    for key, value in named.items():
        folder, _, name = key.rpartition(".")
        computed = {"compile": checked.compiled(), "precision": checked.precision.name}
        present = computed[key] if key in computed else value_of(checked, key)
        assert present != value, f"{key} is so already: {advice}"
        if folder == "dataset":
            assert name in inspect.signature(load_workload(checked).data[checked.dataset.name]).parameters, advice
        values = dict.fromkeys(BATCHES, None) if key in BATCHES else {}
        values |= {"cpu_processes": together} if key == "gpus" and together else {}
        values |= {key: value}
        if repr(values) not in tried:
            tried.add(repr(values))
            following = with_values(asked, values)
            checks.check_run(following, EIGHT_GPUS)
            checks.check_device_batch(following)
        if name == "micro_batch_size" and "=" in advice:
            assert checked.device_batch_size() % value == 0, advice


@pytest.mark.parametrize("model", WORKLOADS)
def test_a_run_can_do_what_it_is_told_to_try(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "check_memory", lambda config, gpus: None)  # MEASURED is of no real run
    number = 0
    for asked, checked in runs(model):
        params = {key: str(value) for key, value in run_setup.params(checked).items()}
        options = [RunOptions(params, checked, **measured) for measured in MEASURED]
        advices = {first_try(cause, each) for cause in causes(checked) for each in options}
        tried: set[str] = set()
        for advice in advices:
            assert advice
            check(advice, asked, checked, tried)
        number += len(advices)
    assert number > 300
