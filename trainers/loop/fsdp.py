"""Shards a model over all processes, by PyTorch's `fully_shard`: `strategy=fsdp`.

A process keeps its share of parameters, gradients and optimizer state. It gathers the parameters of a layer right
before it computes with them, and reduces the layer's gradients over all processes. Lightning's FSDP strategy is not
used for two reasons. Its checkpoints have a file per process, which `strategy=ddp` cannot read. It shards after the
Trainer is made, which is too late for a model larger than a GPU.
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

NARROW = {"bf16": torch.bfloat16, "fp8": torch.bfloat16}  # by precision, the dtype in which layers are gathered


def shard_module(module: TrialModule, shard: Shard, precision: str) -> None:
    """Draw the weights of a module from the meta device, part by part, and keep this process's share of each.

    All processes draw the same numbers. Gradients are averaged in float32. A collective call.
    """
    root, *inner = module.sharded_parts()
    mesh = init_device_mesh(shard.device.type, (shard.world_size,))
    # Each layer casts its inputs itself.
    policy = MixedPrecisionPolicy(NARROW.get(precision), torch.float32, cast_forward_inputs=False)
    options: Any = {"mesh": mesh, "mp_policy": policy, "shard_placement_fn": _cut_for(shard.world_size)}
    _drawn(root, shard.device)
    for part in inner:
        fully_shard(_drawn(part, shard.device), reshard_after_forward=True, **options)
    # By default PyTorch keeps the root's parameters gathered for a backward pass, which an evaluation does not
    # have.
    fully_shard(root, reshard_after_forward=True, **options)
    for method in module.sharded_methods:
        register_fsdp_forward_method(root, method)


def _drawn(part: Any, device: torch.device) -> Any:
    part.to_empty(device=device, recurse=False)
    part.draw()
    return part


def _cut_for(world_size: int) -> Any:
    """Return the placement function: stacked matrices are cut along dimension 1 where only that gives equal parts."""

    def cut(parameter: nn.Parameter) -> CutAlong | None:
        along_second = parameter.ndim > 1 and parameter.shape[0] % world_size and not parameter.shape[1] % world_size
        return CutAlong(1) if along_second else None

    return cut


class Sharded(DDPStrategy):
    """The strategy for a module that `shard_module` has sharded. Checkpoints hold whole tensors, as DDP's do.

    So this class loads a checkpoint of any number of processes and of `strategy=ddp`, and each process takes its share.
    `resume=` still refuses a change of either: a run's figures are for one number of devices.
    """

    def configure_ddp(self) -> None:
        """Do nothing: the sharded module exchanges its gradients itself."""

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the weights as whole tensors on the host of rank 0. A collective call."""
        weights: dict[str, Any] = sharded.whole(super().lightning_module_state_dict(), dist.get_rank() == 0)
        return weights

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Return the optimizer's state as whole tensors on the host of rank 0. A collective call."""
        plain = optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        state: dict[str, Any] = sharded.whole(plain.state_dict(), dist.get_rank() == 0)
        return state

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Map the file into memory: a process then reads only its own share."""
        content: dict[str, Any] = torch.load(checkpoint_path, map_location="cpu", mmap=True, weights_only=weights_only)
        return content

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        current = self.lightning_module.state_dict()
        parts = {name: _like(value, current.get(name)) for name, value in checkpoint["state_dict"].items()}
        self.lightning_module.load_state_dict(parts, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            parts = {
                number: {name: _like(value, parameters[number]) for name, value in slots.items()}
                for number, slots in state["state"].items()
            }
            optimizer.load_state_dict({**state, "state": parts})


def _like(value: Any, parameter: Any) -> Any:
    """Return a whole tensor sharded as the parameter is; other values unchanged."""
    is_local_part = isinstance(value, torch.Tensor) and sharded.is_sharded(parameter) and value.shape == parameter.shape
    return sharded.resharded(value, parameter) if is_local_part else value
