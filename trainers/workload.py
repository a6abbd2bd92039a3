"""The extension point: a workload is a model's module and the datasets that it can be trained on.

A model's YAML names its workload as `package.module:NAME`, so a user's own workload needs no change here.
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
    """A LightningModule that timetrial can time: the base class of every workload's module.

    Its constructor is `(data, learning_rate, weight_decay, **hparams)`, with the hparams of the model's YAML.
    `validation_step`, which also gets test batches, counts on the device; `metrics` turns the counts into values.
    """

    max_epochs: int  # length of the schedule
    max_steps: int | None = None  # length of a schedule in steps; None for one in epochs
    ends_at_zero: bool = False  # whether the learning rate is 0 after that length, so that training on is in vain
    sharded_methods: tuple[str, ...] = ()  # methods of the network, other than `forward`, that call its sharded parts
    multiply: Callable[..., torch.Tensor] = staticmethod(nn.functional.linear)  # the product whose precision is checked
    # Whether a training step launches the same kernels for each batch of one shape, and reads nothing but its tensors.
    same_kernels: bool = False
    made_on_device: bool = False  # whether the constructor is called with the run's device as PyTorch's default one
    captured: bool = False  # whether the loop captures such steps as CUDA graphs; set before `compile_hot_path`
    logged: Any = None  # receives the values of `log`; set by the measuring callback
    view: Any = None  # how to cut the images, for data that leave it open (trainers.data.loading.types.Viewable)

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning sets this attribute some 40 times a step, and nn.Module takes 2 us each time to check whether it is
        # a parameter.
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
        """Journal a number, or a tensor of one number, under its name.

        Values of steps are reduced to one a window (`log_every_n_steps`), values of epochs to one an epoch. The call
        does not wait for the device. The value is that of rank 0; with `sync_dist` it is reduced over all processes,
        and each has to log it. Other arguments, such as `prog_bar`, have no effect. Raises ConfigError for a name,
        value or option that cannot be logged.
        """
        if self.logged is not None and logger is not False:
            self.logged.add(self, name, value, on_step, on_epoch, reduce_fx, sync_dist, batch_size)

    def on_validation_epoch_start(self) -> None:
        average_running_statistics(self)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Raise ConfigError for the first weight of another shape; PyTorch would list all of them."""
        current = self.state_dict()
        for name, saved in checkpoint["state_dict"].items():
            if name in current and current[name].shape != saved.shape:
                raise ConfigError(
                    f"model: saved weight {name} has shape {[*saved.shape]}, the model's has {[*current[name].shape]}."
                    " Next: give the model.hparams of the training that saved it, or train anew"
                )

    def check_batch(self, batch_size: int) -> None:
        """Raise ConfigError if the module cannot train with this batch size per device (option `batch_size`)."""

    def check_targets(self, metrics: Collection[str]) -> None:
        """Raise ConfigError if one of these metrics, which have targets, will be missing with these data."""

    def held_at_once(self, batch_size: int) -> tuple[str, int]:
        """Return the option that limits how much of a device's batch is in memory at once, and its value."""
        return "batch_size", batch_size

    def largest_held(self, most: int, batch_size: int) -> int:
        """Return the largest value of that option, up to `most`, for a batch of `batch_size`; 0 if none is allowed."""
        return most

    def compile_hot_path(self) -> None:
        """Compile in place the parts worth compiling; called once, by default on GPUs only."""

    def drop_compiled(self) -> None:
        """Undo `compile_hot_path` where `torch.compiler.reset()` does not, and free its memory; called after an
        out-of-memory error."""

    def sharded_parts(self) -> list[Any]:
        """Return what `strategy=fsdp` shards: the network first, then its parts, which are gathered one by one.

        Each has a method `draw()`, which initializes its own parameters, without those of the other parts. All
        computing happens in calls of these parts or of the network's `sharded_methods`. Every process makes the same
        calls, also in an evaluation. Raises ConfigError for a module without such parts.
        """
        raise ConfigError(f"strategy=fsdp: {type(self).__name__} has no sharded_parts(). Next: give strategy=ddp")

    def use_fp8(self) -> None:
        """Compute linear layers, and `multiply`, in fp8 from now on. Raises ConfigError if the module has none."""
        raise ConfigError(f"precision=fp8: {type(self).__name__} has no fp8 layers. Next: give precision=bf16")

    def metrics(self) -> dict[str, float]:
        """Return the metrics, over all processes, of the evaluation since the last call. A collective call."""
        raise NotImplementedError

    def flops_per_sample(self) -> float | None:
        """Return the model FLOPs of a training step (forward and backward) per sample, or None to have them counted.

        They are counted on a small batch, which is exact only if all samples have one size. 0 leaves the FLOP rates
        out, for a model whose steps also wait for other work on the GPU.
        """
        return None

    def predictor(self, batch: Batch) -> tuple[nn.Module, torch.Tensor]:
        """Return the network in its predicting form, and its input from a batch, for the export of `log_model=true`.

        The network takes and returns one tensor whose first dimension is the batch. It shares its weights with the
        module; the export copies it to the CPU.
        """
        raise NotImplementedError

    def write_report(self, run_dir: Path) -> None:
        """Write plots of the last evaluation, and their data; called on rank 0, off the clock."""


@dataclass(frozen=True)
class Workload:
    module: Callable[..., TrialModule]
    data: Mapping[str, Callable[..., Data]]  # by dataset name; called with the dataset options that are set
    unit: str = "images"  # what samples are called


def load_workload(config: RunConfig) -> Workload:
    """Import the workload that the config names; `trainers.` means timetrial's own. Raises ConfigError on failure."""
    module_name, _, name = config.model.workload.partition(":")
    if module_name.startswith("trainers."):
        module_name = installation.module(module_name)
    try:
        workload = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"model.workload={config.model.workload}: {error}. Next: give package.module:NAME of a timetrial.Workload"
            " that this Python can import (PYTHONPATH must hold its folder)"
        ) from error
    if not isinstance(workload, Workload):
        raise ConfigError(
            f"model.workload={config.model.workload}: is a {type(workload).__name__}. Next: give package.module:NAME"
            " of a timetrial.Workload"
        )
    return workload


def viewed(data: Data, module: TrialModule) -> Data:
    """Return the data with images cut by the module's view; unchanged without a view, or if the data take none."""
    return data.viewed(module.view) if module.view is not None and isinstance(data, Viewable) else data


def bind(function: Callable[..., Any], prefix: str, **options: Any) -> Any:
    """Call `function` with the options. Raises ConfigError for an unknown or missing one, named after `prefix`."""
    signature = inspect.signature(function)
    unknown = sorted(set(options) - set(signature.parameters))
    if unknown:
        allowed = ", ".join(signature.parameters) or "none"
        raise ConfigError(f"{prefix}.{unknown[0]}: {function.__name__} takes no such option. Allowed: {allowed}")
    try:
        signature.bind(**options)
    except TypeError as error:
        raise ConfigError(f"{prefix}: {error} of {function.__name__}") from error
    return function(**options)


old_paths.watch(__name__)
