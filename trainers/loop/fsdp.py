"""A model in parts on all processes, by PyTorch's `fully_shard`: `strategy=fsdp`.

A process keeps its part of parameters, gradients and the optimizer's state. It gathers the parameters of a layer right
before it computes with them, and gives back its gradients as sums over all processes. Lightning's own strategy for it
would write checkpoints in files of each process, in a form that `strategy=ddp` does not read. It also shards after the
Trainer is made, when a model larger than a GPU is too late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import Shard as CutAlong

from trainers.ops.sharding import sharded
from trainers.workload import Shard, TrialModule

NARROW = {"bf16": torch.bfloat16, "fp8": torch.bfloat16}  # in which layers compute, and are gathered


def shard_module(module: TrialModule, shard: Shard, precision: str) -> None:
    """Draw the weights of a module on the meta device, part by part, and keep this process's share of each.

    Every process draws the same numbers. Gradients are averaged in float32. A collective call.
    """
    root, *inner = module.sharded_parts()
    mesh = init_device_mesh(shard.device.type, (shard.world_size,))
    # A layer says itself in which type it computes, so inputs come as they are.
    policy = MixedPrecisionPolicy(NARROW.get(precision), torch.float32, cast_forward_inputs=False)
    options: Any = {"mesh": mesh, "mp_policy": policy, "shard_placement_fn": _cut_for(shard.world_size)}
    _drawn(root, shard.device)
    for part in inner:
        fully_shard(_drawn(part, shard.device), reshard_after_forward=True, **options)
    # PyTorch would keep the root's whole between its passes, and so behind an evaluation, where none goes back.
    fully_shard(root, reshard_after_forward=True, **options)
    for method in module.sharded_methods:
        register_fsdp_forward_method(root, method)


def _drawn(part: Any, device: torch.device) -> Any:
    part.to_empty(device=device, recurse=False)
    part.draw()
    return part


def _cut_for(world_size: int) -> Any:
    """Several matrices in one parameter are cut within each of them, where that gives equal parts."""

    def cut(parameter: nn.Parameter) -> CutAlong | None:
        several = parameter.ndim > 1 and parameter.shape[0] % world_size and not parameter.shape[1] % world_size
        return CutAlong(1) if several else None

    return cut


class Sharded(DDPStrategy):
    """Processes whose module was sharded when it was made. Checkpoints hold whole tensors, as those of DDP do.

    So a training goes on from a checkpoint on another number of processes, or by the other strategy.
    """

    def configure_ddp(self) -> None:
        """The module exchanges its gradients itself."""

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Whole tensors on the first process's host. A collective call."""
        weights: dict[str, Any] = sharded.whole(super().lightning_module_state_dict(), dist.get_rank() == 0)
        return weights

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The same of the optimizer."""
        plain = optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        state: dict[str, Any] = sharded.whole(plain.state_dict(), dist.get_rank() == 0)
        return state

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """What lies in the file is read when a process takes its part of it."""
        content: dict[str, Any] = torch.load(checkpoint_path, map_location="cpu", mmap=True, weights_only=weights_only)
        return content

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        own = self.lightning_module.state_dict()
        parts = {name: _like(value, own.get(name)) for name, value in checkpoint["state_dict"].items()}
        self.lightning_module.load_state_dict(parts, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            parts = {
                number: {name: _like(value, parameters[number]) for name, value in of_one.items()}
                for number, of_one in state["state"].items()
            }
            optimizer.load_state_dict({**state, "state": parts})


def _like(value: Any, parameter: Any) -> Any:
    """A whole tensor of a parameter's shape in parts, as the parameter is."""
    of_shape = isinstance(value, torch.Tensor) and sharded.is_sharded(parameter) and value.shape == parameter.shape
    return sharded.resharded(value, parameter) if of_shape else value
