"""The one extension point: a workload is a model's module and the datasets it can be trained on.

A model's YAML names its workload as `package.module:NAME`, so a workload of the user's own needs no change here.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn

from conf.schema import ConfigError, RunConfig
from tracking.base import installation, old_paths
from trainers.data.loading.types import (
    Batch,
    ClassificationData,
    Data,
    DetectionData,
    Grouped,
    InTokens,
    Loader,
    Recorded,
    Shard,
    Versioned,
    Viewable,
)
from trainers.ops.batchnorm import average_running_statistics

__all__ = [
    "Batch", "ClassificationData", "Data", "DetectionData", "Grouped", "InTokens", "Loader", "Recorded", "Shard",
    "TrialModule", "Versioned", "Viewable", "Workload", "bind", "load_workload", "viewed",
]  # fmt: skip


class TrialModule(pl.LightningModule):
    """What a workload's module adds to a LightningModule.

    Constructor: `(data, learning_rate, weight_decay, **hparams)`, hparams being those of the model's YAML.
    `validation_step` (also called on test batches) counts on the device; `metrics` turns the counts into values.
    """

    max_epochs: int  # the length of the schedule
    max_steps: int | None = None  # the same in steps, where it is not in epochs (trainers.loop.evaluation_times)
    sharded_methods: tuple[str, ...] = ()  # those of the network that call its parts, beside `forward`
    multiply: Callable[..., torch.Tensor] = staticmethod(nn.functional.linear)  # its products, as they are observed
    logged: Any = None  # what takes the values of `log`; the measuring callback sets it
    view: Any = (
        None  # how the images are to be cut, where the data leave that open (trainers.data.loading.types.Viewable)
    )

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning notes the running hook here some 40 times a step, and nn.Module takes 2 us each to look whether
        # it is a parameter.
        if name == "_current_fx_name":
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def log(
        self, name: str, value: Any, prog_bar: bool = False, logger: bool | None = None, on_step: bool | None = None,
        on_epoch: bool | None = None, reduce_fx: str | Callable[..., Any] = "mean", enable_graph: bool = False,
        sync_dist: bool = False, sync_dist_group: Any = None, add_dataloader_idx: bool = True,
        batch_size: int | None = None, metric_attribute: str | None = None, rank_zero_only: bool = False,
    ) -> None:  # fmt: skip
        """Journal a number or a tensor of one number under its name, as Lightning's loggers would.

        A value of a step becomes one a window (`log_every_n_steps`), of an epoch one an epoch. Nothing waits for the
        device. It is process 0's value, with `sync_dist` that of all processes: then every process has to log it.
        Raises ConfigError for a name, value or option that cannot be logged. What is not named here has no effect, as
        `prog_bar`.
        """
        if self.logged is not None and logger is not False:
            self.logged.add(self, name, value, on_step, on_epoch, reduce_fx, sync_dist, batch_size)

    def on_validation_epoch_start(self) -> None:
        average_running_statistics(self)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Raise ConfigError for weights of another shape, which PyTorch would list all."""
        own = self.state_dict()
        for name, given in checkpoint["state_dict"].items():
            if name in own and own[name].shape != given.shape:
                raise ConfigError(
                    f"model: the weights' {name} has the shape {[*given.shape]}, and the model's {[*own[name].shape]};"
                    " give the model.hparams that they were trained with, or train anew"
                )

    def check_batch(self, batch_size: int) -> None:
        """Raise ConfigError for a device's batch, as `batch_size=` gives it, that the module cannot train on."""

    def check_targets(self, metrics: Collection[str]) -> None:
        """Raise ConfigError for a target on one of these metrics that there will not be with these data."""

    def held_at_once(self, batch_size: int) -> tuple[str, int]:
        """The option, and its value, that says how much of a device's batch is in memory at once."""
        return "batch_size", batch_size

    def largest_held(self, most: int, batch_size: int) -> int:
        """The largest value of that option up to `most` that a device's batch of `batch_size` allows; 0 for none."""
        return most

    def compile_hot_path(self) -> None:
        """Compile in place what is worth compiling; called once, on GPUs by default."""

    def drop_compiled(self) -> None:
        """Have steps run as before `compile_hot_path`, where `torch.compiler.reset()` does not see to that, and free
        what it keeps; called where the memory did not suffice."""

    def sharded_parts(self) -> list[Any]:
        """What `strategy=fsdp` cuts: the network, and then the parts of it that are gathered one after the other.

        Each has a method `draw()`, which gives its own parameters, without those of the others, their first values.
        All computing is in calls of these parts, or of the network's `sharded_methods`. Every process makes the same
        ones, also in an evaluation. Raises ConfigError where there are none.
        """
        raise ConfigError(f"strategy=fsdp: {type(self).__name__} has no sharded_parts(); give strategy=ddp")

    def use_fp8(self) -> None:
        """Have the linear layers computed in fp8 from now on, and `multiply` so. Raises ConfigError where none can."""
        raise ConfigError(f"precision=fp8: {type(self).__name__} has no layers for it; give precision=bf16")

    def metrics(self) -> dict[str, float]:
        """The metrics over all processes of what was evaluated since the last call; a collective call."""
        raise NotImplementedError

    def flops_per_sample(self) -> float | None:
        """Model FLOPs of a training step (forward and backward) a sample, where the module states them.

        None has them counted on a small batch, which gives those of all samples where they are of one size.
        """
        return None

    def predictor(self, batch: Batch) -> tuple[nn.Module, torch.Tensor]:
        """The network as it predicts, and its input out of a batch: what `log_model=true` exports by torch.export.

        It takes and returns one tensor, whose first dimension is that of the samples. It shares its weights with the
        module, is copied to the CPU, and needs no more than the module itself there.
        """
        raise NotImplementedError

    def write_report(self, run_dir: Path) -> None:
        """Write plots, and the data behind them, of the last evaluation; called on rank 0, off the clock."""


@dataclass(frozen=True)
class Workload:
    module: Callable[..., TrialModule]
    data: Mapping[str, Callable[..., Data]]  # by dataset name; called with what is set of the dataset's options
    unit: str = "images"  # what a sample is


def load_workload(config: RunConfig) -> Workload:
    """Import the workload that the config names; `trainers.` is ours, wherever that lies. Raises ConfigError where
    there is none."""
    module_name, _, name = config.model.workload.partition(":")
    if module_name.startswith("trainers."):
        module_name = installation.module(module_name)
    try:
        workload = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"model.workload={config.model.workload}: {error}; give package.module:NAME of a timetrial.Workload"
            " that this Python can import (PYTHONPATH must hold its folder)"
        ) from error
    if not isinstance(workload, Workload):
        raise ConfigError(f"model.workload={config.model.workload}: is a {type(workload).__name__}, not a Workload")
    return workload


def viewed(data: Data, module: TrialModule) -> Data:
    """The data, cut as the module wants them; as they are where the one does not ask or the other has no choice."""
    return data.viewed(module.view) if module.view is not None and isinstance(data, Viewable) else data


def bind(function: Callable[..., Any], prefix: str, **given: Any) -> Any:
    """Call `function` with `given`; an argument it does not take, or lacks, is the user's error and named so."""
    signature = inspect.signature(function)
    unknown = sorted(set(given) - set(signature.parameters))
    if unknown:
        allowed = ", ".join(signature.parameters) or "none"
        raise ConfigError(f"{prefix}.{unknown[0]}: {function.__name__} takes no such option; allowed: {allowed}")
    try:
        signature.bind(**given)
    except TypeError as error:
        raise ConfigError(f"{prefix}: {error} of {function.__name__}") from error
    return function(**given)


old_paths.watch(__name__)
