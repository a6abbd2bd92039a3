"""A training step's forward and backward pass as one CUDA graph for each shape of batches.

PyTorch's own graphs are one for each pass. Around them it checks all parameters, and hands over each gradient by
itself. At small batches this takes the host longer than the kernels take the GPU.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from conf.schema import RunConfig
from trainers.loop.warmup.graph_memory import GraphMemory
from trainers.ops.compiling import CAPTURES_SEC, accept_gradients_of_graphs
from trainers.workload import Batch, TrialModule

log = logging.getLogger(__name__)
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")  # Lightning's names; it caches no casts in the last two


def captures(config: RunConfig, module: TrialModule, alone: bool) -> bool:
    """Return whether the module's steps are captured. `alone`: no gradient is exchanged during the backward pass."""
    return (
        module.same_kernels
        and alone
        and config.compiled()
        and module.device.type == "cuda"
        and config.precision.trainer in PRECISIONS
        and not config.sharded()
    )


@dataclass(frozen=True)
class Captured:
    """A captured step: its inputs, loss and gradients have the same addresses in each replay."""

    replay: Callable[[], None]
    inputs: dict[str, torch.Tensor]
    loss: torch.Tensor
    gradients: list[torch.Tensor | None]


class CapturedSteps:
    """Takes the place of a module's `training_step`, `backward`, `optimizer_zero_grad` and `drop_compiled`.

    A batch whose shape was captured is copied into the graph's inputs, and the graph is replayed. Any other batch takes
    the usual path. Each graph has gradients of its own, and all share the other memory: loss and gradients are valid
    until the next step.
    """

    def __init__(
        self,
        module: TrialModule,
        autocast: Callable[[], AbstractContextManager[Any]],
        scale: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        """`autocast` is the context in which the loop calls `training_step`; it must not cache casts.

        `scale` multiplies the loss before the backward pass by a tensor, such as a GradScaler's. The tensor exists
        after the first step and is updated in place, so that each replay reads its value.
        """
        self._autocast, self._scale = autocast, scale
        self._parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._usual = module.training_step, module.backward, module.optimizer_zero_grad, module.drop_compiled
        self._captured: dict[Any, Captured] = {}
        self._names: tuple[str, ...] = ()  # the tensors of a batch that the step reads
        self._now: Captured | None = None  # the graph whose replay is the current step
        self._pool: Any = None
        self._stream: Any = None  # for the steps before captures
        self._memory = GraphMemory(module.device)
        module.training_step = self.training_step  # type: ignore[method-assign]
        module.backward = self.backward  # type: ignore[method-assign]
        module.optimizer_zero_grad = self.optimizer_zero_grad  # type: ignore[method-assign]
        module.drop_compiled = self.drop_compiled  # type: ignore[method-assign]

    def capture(self, batch: Batch) -> None:
        """Capture the step for batches of this one's shape, if a graph has room. Drops the gradients.

        The step must have run before. It runs once more here, which changes buffers and random states, but no weight.
        """
        inputs = {name: value.clone() for name, value in batch.items() if isinstance(value, torch.Tensor)}
        noted = Noted({**batch, **inputs})
        step = partial(self._run, noted)
        self._drop_gradients()
        has_room = self._memory.has_room(partial(self._rehearse, step))
        # Without gradients the backward pass assigns them instead of adding to them, and so does each replay.
        self._drop_gradients()
        if not has_room:
            log.warning(
                "A CUDA graph of a step has no room beside the optimizer, so its kernels are launched one by one. Next:"
                " if steps are slow, give a smaller batch (of a language model: model.hparams.micro_batch_size)"
            )
            return
        torch.clear_autocast_cache()
        replay, loss = self._recorded(step)
        gradients = [parameter.grad for parameter in self._parameters]
        self._drop_gradients()
        self._names = tuple(name for name in inputs if name in noted.names)
        inputs = {name: inputs[name] for name in self._names}
        self._captured[self._shapes_of(batch)] = Captured(replay, inputs, loss, gradients)

    def _rehearse(self, step: Callable[[], torch.Tensor]) -> None:
        """Run the step on the graph's own inputs. PyTorch may compile functions for them, which a capture forbids.

        It runs on another stream than the capture: PyTorch may free the workspace that cuBLAS has for a stream. A
        graph's workspace has to lie in the graphs' memory pool.
        """
        accept_gradients_of_graphs()
        self._stream = self._stream or torch.cuda.Stream()
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            step()
        current.wait_stream(self._stream)

    def _recorded(self, step: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """Return a function that replays the step at the same addresses, and the tensor of its loss."""
        graph, self._pool = torch.cuda.CUDAGraph(), self._pool or torch.cuda.graph_pool_handle()
        began = time.monotonic()
        # Other threads, as a loader's, may allocate memory during the capture.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            loss = step()
        CAPTURES_SEC.append(time.monotonic() - began)
        return graph.replay, loss

    def _run(self, batch: Batch) -> torch.Tensor:
        with self._autocast():
            loss: Any = self._usual[0](batch, 0)
        (self._scale(loss) if self._scale else loss).backward()
        return cast("torch.Tensor", loss.detach())

    def _drop_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        self._now = self._captured.get(self._shapes_of(batch))
        if self._now is None:
            return cast("torch.Tensor", self._usual[0](batch, batch_idx))
        for name, tensor in self._now.inputs.items():
            tensor.copy_(batch[name], non_blocking=True)
        self._now.replay()
        return self._now.loss

    def backward(self, loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if self._now is None:
            self._usual[1](loss, *args, **kwargs)
            self._memory.backward_ended()
            return
        for parameter, gradient in zip(self._parameters, self._now.gradients, strict=True):
            parameter.grad = gradient

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        if self._now is None:
            self._usual[2](epoch, batch_idx, optimizer)

    def drop_compiled(self) -> None:
        """Drop all graphs, and free their memory."""
        self._captured.clear()
        self._now = self._pool = None
        self._usual[3]()

    def _shapes_of(self, batch: Batch) -> tuple[Any, ...]:
        tensors = [batch[name] for name in self._names]
        return tuple((tensor.shape, tensor.dtype, tensor.stride()) for tensor in tensors)


class Noted(dict[str, Any]):
    """A batch that notes which of its names are read."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self.names = set[str]()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)
