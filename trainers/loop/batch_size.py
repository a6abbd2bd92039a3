"""Counts a dataset's samples, checks that an epoch fills a global batch, and names a batch that fits the memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

from conf.schema import ConfigError, RunConfig
from trainers.data.selfplay import SelfPlayData
from trainers.ops.sharding import sharded
from trainers.workload import Data, Grouped, InTokens, Shard, TrialModule

PROBE = 2  # samples in the first probe; the second has twice as many, and the difference gives the bytes per sample
USABLE = 0.9  # share of the device's memory; the rest is fragmentation and what other processes hold


def checked_train_samples(data: Data, config: RunConfig, shard: Shard) -> int:
    """Return the number of samples trained in an epoch. Raises ConfigError if the global batch is larger.

    Part of such a batch would be padding, and warming up on a very large one takes minutes.
    """
    if isinstance(data, InTokens):
        return _checked_tokens(data, config)
    # A loader knows its length without reading data. With one process and one group a batch, it counts groups.
    group = group_size(data)
    num_samples = len(data.train_loader(group, config.seed, Shard(0, 1, shard.device))) * group
    if config.samples_per_step() <= num_samples:
        return num_samples
    max_batch = num_samples // shard.world_size // group * group
    next_step = f"give up to batch_size={max_batch}" if max_batch else f"train on up to {num_samples // group} devices"
    devices = f" on each of {shard.world_size} devices" if shard.world_size > 1 else ""
    raise ConfigError(
        f"batch_size={config.device_batch_size()}{devices}: is larger than the training set of dataset="
        f"{config.dataset.name}, which has {num_samples:,} samples. Next: {next_step}"
    )


def _checked_tokens(data: InTokens, config: RunConfig) -> int:
    if config.samples_per_step() > data.num_train_tokens:
        raise ConfigError(
            f"batch_size={config.device_batch_size()} on each of {config.world_size()} devices: is in tokens, and"
            f" larger than the training set of dataset={config.dataset.name}, which has {data.num_train_tokens:,}."
            " Next: give a smaller batch_size"
        )
    # Tokens after the last full global batch of an epoch are not trained on.
    return (
        data.num_train // config.samples_per_step() * config.samples_per_step()
        if samples_are_tokens(data)
        else data.num_train
    )


def num_eval_samples(data: Data, shard: Shard) -> int:
    """Return the number of samples in an evaluation; 0 without data to evaluate on."""
    if isinstance(data, InTokens | SelfPlayData):
        return data.num_eval
    loader = data.eval_loader(1, Shard(0, 1, shard.device))
    return 0 if loader is None else len(loader)


def samples_are_tokens(data: InTokens) -> bool:
    """Return whether samples are tokens, so that each step trains exactly a global batch; else they are sentences."""
    return data.num_train == data.num_train_tokens


def group_size(data: Data) -> int:
    """Return how many training samples always stay in one batch."""
    return data.group_size if isinstance(data, Grouped) else 1


@contextmanager
def naming_the_batch_that_fits(
    module: TrialModule, data: Data, batch_size: int, device: torch.device, context: Callable[[], object]
) -> Iterator[None]:
    """Add an estimate of the batch size that would fit to an OutOfMemoryError raised in the block.

    `context` makes the context of a training step, which sets its precision.
    """
    try:
        yield
        return
    except torch.OutOfMemoryError as error:
        message = str(error).splitlines()[0]
    key, size = module.held_at_once(batch_size)
    if any(map(sharded.is_sharded, module.parameters())):  # A process cannot try a step without the others.
        raise torch.OutOfMemoryError(
            f"{key}={size} does not fit into the GPU's memory. Next: give a smaller {key}, or more GPUs. {message}"
        )
    # Probe outside of the handler: its traceback keeps the step's tensors alive.
    try:
        fits = module.largest_held(batch_that_fits(module, data, device, context), batch_size)
    except Exception:  # The memory may still be held, or the module's step may not run on a probe.
        advice = f". Next: give a smaller {key}"
    else:
        advice = f"; about {key}={fits} would fit. Next: give that" if fits else "; no batch would fit"
        if fits >= size:
            advice = f"; a step alone would fit. Next: give a smaller {key}, or compile=false, which keeps less memory"
    raise torch.OutOfMemoryError(f"{key}={size} does not fit into the GPU's memory{advice}. {message}")


def batch_that_fits(module: TrialModule, data: Data, device: torch.device, context: Callable[[], object]) -> int:
    """Estimate the largest batch that fits, from the peak memory of two small eager training steps.

    Only this process runs them. Drops everything compiled, because CUDA graphs would hold their memory meanwhile.
    """
    module.drop_compiled()
    torch.compiler.reset()
    group = group_size(data)
    probe = PROBE * (data.longest if isinstance(data, InTokens) else group)
    peaks = [_peak(module, data, size, device, context) for size in (probe, 2 * probe)]
    bytes_per_sample = (peaks[1] - peaks[0]) / probe
    total = torch.cuda.get_device_properties(device).total_memory
    fits = int((USABLE * total - (peaks[0] - probe * bytes_per_sample)) / max(bytes_per_sample, 1))
    multiple = group * (8 if fits >= 8 * group else 1)
    return max(0, fits // multiple * multiple)


def _peak(module: TrialModule, data: Data, batch_size: int, device: torch.device, context: Callable[[], object]) -> int:
    module.zero_grad(set_to_none=True)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    batch = data.example_batches(batch_size, device)[0]
    with torch.compiler.set_stance("force_eager"), context():  # type: ignore[attr-defined]
        loss = module.training_step(batch, 0)
    loss = loss["loss"] if isinstance(loss, Mapping) else loss
    assert isinstance(loss, torch.Tensor)
    # Not loss.backward(): accumulating gradients would call DDP's hooks, a collective call in the middle of a failed
    # step.
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    torch.autograd.grad(loss, trained, allow_unused=True)
    return torch.cuda.max_memory_allocated(device)
