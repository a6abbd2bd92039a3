"""Compiles and warms up on generated data before the clock starts, and restores the model afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from conf.schema import ConfigError
from trainers.loop.saving import ALIGNMENT, num_bytes
from trainers.loop.warmup import parallel
from trainers.ops.sharding import sharded
from trainers.workload import Batch, TrialModule

NUM_STEPS = 3  # The first compiles, the second allocates the optimizer's state, the third runs like all later ones.
LARGE_BYTES = 2**30  # A state of a module or optimizer above this size is copied to the host, not on the device.
NUM_EVALUATIONS = 2  # PyTorch compiles a function at its first call and records its CUDA graph at the second.


def warm_up(
    trainer: pl.Trainer,
    module: TrialModule,
    batches: Sequence[Batch],
    evaluate: bool = True,
    targets: Collection[str] = (),
    capture: Callable[[Batch], None] | None = None,
) -> int:
    """Run training and evaluation steps on generated batches; return the bytes of a copy of the optimizer's state.

    The steps take the same path as real ones; `capture`, if given, gets each batch after them. Parameters, buffers,
    optimizer, loss scaler, gradients, random states and modes are restored afterwards. Raises ConfigError for a target
    whose metric the module does not return.
    """
    optimizer = trainer.optimizers[0]
    with untouched(trainer, module):
        for batch in batches:
            step = partial(_forward_backward, trainer, optimizer, batch)
            for _ in range(NUM_STEPS):
                # The training loop makes the same call, which includes precision, gradient exchange and scaler.
                trainer.strategy.optimizer_step(optimizer, step)
            if capture is not None:
                capture(batch)
                trainer.strategy.optimizer_step(optimizer, step)
        state_bytes = num_bytes(optimizer.state_dict(), ALIGNMENT)
        if not evaluate:
            return state_bytes
        with evaluating(module), torch.no_grad():
            for batch in batches:
                for _ in range(NUM_EVALUATIONS):
                    trainer.strategy.validation_step(batch, 0)
            check_names(module, module.metrics(), targets)  # metrics() also drops the counts.
    return state_bytes


def check_names(module: TrialModule, metrics: Collection[str], targets: Collection[str]) -> None:
    """Raise ConfigError for a target whose metric is not in `metrics`. A module without metrics is not checked."""
    for name in targets:
        if metrics and name not in metrics:
            raise ConfigError(
                f"model.targets: {name} is not a metric that metrics() of {type(module).__name__} returns; allowed:"
                f" {', '.join(sorted(metrics))}. Next: give a target on one of them, or return {name} from metrics()"
            )


def compile_alone(
    trainer: pl.Trainer, module: TrialModule, batches: Sequence[Batch], evaluate: bool,
    helpers: parallel.Helpers | None,
) -> None:  # fmt: skip
    """Compile what `warm_up` will run, without collective calls, and restore the model.

    Helper processes take a share. Counts of the evaluation remain; `warm_up` drops them with its own.
    """

    def evaluate_batch(batch: Batch) -> None:
        with evaluating(module), torch.no_grad():
            trainer.strategy.validation_step(batch, 0)

    def train_batch(batch: Batch) -> None:
        if helpers:  # A function that is only kept needs no backward pass: both passes are compiled together.
            trainer.strategy.training_step(batch, 0)
        else:
            _forward_backward(trainer, trainer.optimizers[0], batch)

    parts = parallel.parts(batches, train_batch, evaluate_batch if evaluate else None)
    # A single device has nothing to exchange.
    without_exchange = getattr(trainer.strategy, "block_backward_sync", nullcontext)
    with untouched(trainer, module), without_exchange():
        if helpers:
            helpers.compile(parts)
        else:
            for part in parts.values():
                part()


def number_of_helpers(trainer: pl.Trainer, module: TrialModule, batches: Sequence[Batch], evaluate: bool) -> int:
    """Return how many processes compile beside this one: none for a module wrapped by DDP, which keeps no traces."""
    if isinstance(trainer.strategy.model, DistributedDataParallel):
        return 0
    return parallel.number_of_helpers(module, (1 + evaluate) * len(batches))


def _forward_backward(trainer: pl.Trainer, optimizer: torch.optim.Optimizer, batch: Batch) -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = trainer.strategy.training_step(batch, 0)  # type: ignore[assignment]
    trainer.strategy.backward(loss, optimizer)
    return loss.detach()


@contextmanager
def untouched(trainer: pl.Trainer, module: TrialModule) -> Iterator[None]:
    """Restore in place, after the block, all state that training changes."""
    state = module.state_dict()
    large = num_bytes(state) > LARGE_BYTES
    tensors = {name: copied(tensor, large) for name, tensor in state.items()}
    optimizers = [restoring(optimizer.state_dict()) for optimizer in trainer.optimizers]
    precision = copy.deepcopy(trainer.precision_plugin.state_dict())
    devices = [module.device] if module.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            sharded.local(tensor).copy_(tensors[name])  # In place: CUDA graphs hold its address.
    for optimizer, restored in zip(trainer.optimizers, optimizers, strict=True):
        optimizer.load_state_dict(restored())
        optimizer.zero_grad()
    trainer.precision_plugin.load_state_dict(precision)


def restoring(state: Any) -> Callable[[], Any]:
    """Copy a state's tensors; return a function that writes them back in place and returns the state.

    A resumed run's optimizer has a state already. A second one beside it may not fit on the GPU.
    """
    tensors: list[torch.Tensor] = []
    sharded.mapped(state, tensors.append)
    large = num_bytes(state) > LARGE_BYTES
    values = [copied(tensor, large) for tensor in tensors]
    kept = copy.deepcopy(state, {id(tensor): tensor for tensor in tensors})  # shares the tensors

    @torch.no_grad()
    def restored() -> Any:
        for tensor, value in zip(tensors, values, strict=True):
            sharded.local(tensor).copy_(value)
        return kept

    return restored


def copied(tensor: torch.Tensor, large: bool) -> torch.Tensor:
    """Return a copy of this process's part. Large or sharded states are copied to the host: the GPU may lack room."""
    local = sharded.local(tensor)
    return local.to("cpu", copy=True) if large or sharded.is_sharded(tensor) else local.clone()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put the module into evaluation mode in the block, and restore the mode of each submodule afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def flops_per_sample(trainer: pl.Trainer, module: TrialModule, batch: Batch) -> float:
    """Return the model FLOPs of a training step (forward and backward) per sample.

    They come from the module, or else from PyTorch's counter, which sees only eager operations: call this before
    compiling.
    """
    if (stated := module.flops_per_sample()) is not None:
        return stated
    counter = FlopCounterMode(display=False)
    with untouched(trainer, module), counter, trainer.precision_plugin.train_step_context():
        loss = module.training_step(batch, 0)
        assert isinstance(loss, torch.Tensor)
        loss.backward()
    return counter.get_total_flops() / int(batch["num_samples"])
