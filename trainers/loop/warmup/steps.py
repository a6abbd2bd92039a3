"""Compiles and warms up on generated data before the clock starts, and leaves no trace of it."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from conf.schema import ConfigError
from trainers.loop.saving import num_bytes
from trainers.ops.sharding import sharded
from trainers.workload import Batch, TrialModule

NUM_STEPS = 3  # One compiles, one allocates what the optimizer keeps, one runs as all others will.
LARGE_BYTES = 2**30  # of a module's state
NUM_EVALUATIONS = 2  # At a function's first call PyTorch compiles it, at the second it records its CUDA graph.


def warm_up(
    trainer: pl.Trainer,
    module: TrialModule,
    batches: Sequence[Batch],
    evaluate: bool = True,
    targets: Collection[str] = (),
) -> int:
    """Run training and evaluation steps on generated batches, through all that the real steps go through.

    Returns the bytes that the optimizer keeps from its first step on. Parameters, buffers, optimizer, loss scaler,
    gradients, random states and modes are afterwards as they were before. Raises ConfigError for a target on
    what is no metric of the module's.
    """
    optimizer = trainer.optimizers[0]
    with untouched(trainer, module):
        for batch in batches:
            step = partial(_forward_backward, trainer, optimizer, batch)
            for _ in range(NUM_STEPS):
                # The same call that the training loop makes: precision, gradient synchronisation, scaler included.
                trainer.strategy.optimizer_step(optimizer, step)
        kept = num_bytes(optimizer.state_dict())
        if not evaluate:
            return kept
        with evaluating(module), torch.no_grad():
            for batch in batches:
                for _ in range(NUM_EVALUATIONS):
                    trainer.strategy.validation_step(batch, 0)
            check_names(module, module.metrics(), targets)  # The counts are dropped by it.
    return kept


def check_names(module: TrialModule, metrics: Collection[str], targets: Collection[str]) -> None:
    """Raise ConfigError for a target that no evaluation would ever tell. A module without metrics is not judged."""
    for name in targets:
        if metrics and name not in metrics:
            raise ConfigError(
                f"model.targets: {name} is no metric that metrics() of {type(module).__name__} returns, which are"
                f" {', '.join(sorted(metrics))}; return it by this name, or give a target on one of them"
            )


def compile_alone(trainer: pl.Trainer, module: TrialModule, batches: Sequence[Batch], evaluate: bool) -> None:
    """Compile what `warm_up` will run, with no exchange between processes, and leave no trace in the model.

    Evaluations leave counts, which `warm_up` drops with its own.
    """
    with untouched(trainer, module), trainer.strategy.block_backward_sync():  # type: ignore[attr-defined]
        for batch in batches:
            _forward_backward(trainer, trainer.optimizers[0], batch)
        if evaluate:
            with evaluating(module), torch.no_grad():
                for batch in batches:
                    trainer.strategy.validation_step(batch, 0)


def _forward_backward(trainer: pl.Trainer, optimizer: torch.optim.Optimizer, batch: Batch) -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = trainer.strategy.training_step(batch, 0)  # type: ignore[assignment]
    trainer.strategy.backward(loss, optimizer)
    return loss.detach()


@contextmanager
def untouched(trainer: pl.Trainer, module: TrialModule) -> Iterator[None]:
    """Restore, in place, all that training changes."""
    state = module.state_dict()
    large = num_bytes(state) > LARGE_BYTES
    tensors = {name: copied(tensor, large) for name, tensor in state.items()}
    optimizers = [copy.deepcopy(optimizer.state_dict()) for optimizer in trainer.optimizers]
    precision = copy.deepcopy(trainer.precision_plugin.state_dict())
    devices = [module.device] if module.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            sharded.local(tensor).copy_(tensors[name])  # What was compiled still points at it.
    for optimizer, state in zip(trainer.optimizers, optimizers, strict=True):
        optimizer.load_state_dict(state)
        optimizer.zero_grad()
    trainer.precision_plugin.load_state_dict(precision)


def copied(tensor: torch.Tensor, large: bool) -> torch.Tensor:
    """A copy; on the host of a large model, which may leave no room for a second one, and of one that is sharded."""
    own = sharded.local(tensor)
    return own.to("cpu", copy=True) if large or sharded.is_sharded(tensor) else own.clone()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put all parts into evaluation mode; afterwards each is as before, also one that a module keeps in that mode."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def flops_per_sample(trainer: pl.Trainer, module: TrialModule, batch: Batch) -> float:
    """Model FLOPs of a training step (forward and backward) a sample, as the module or PyTorch's counter has it.

    Call it before compiling: the counter sees the operations of eager mode only.
    """
    if (stated := module.flops_per_sample()) is not None:
        return stated
    counter = FlopCounterMode(display=False)
    with untouched(trainer, module), counter, trainer.precision_plugin.train_step_context():
        loss = module.training_step(batch, 0)
        assert isinstance(loss, torch.Tensor)
        loss.backward()
    return counter.get_total_flops() / int(batch["num_samples"])
