"""Marks within a step: the last gradient, the end of the backward pass, and the start of the optimizer.

At the end of the backward pass, DDP waits for the exchange of gradients and so for later ranks. Loops that average
gradients themselves do so before the optimizer starts. Timing whole steps does not show this wait, since the exchange
makes all ranks equally slow. The update of the weights lasts from the optimizer's start to the end of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import dataloader

ENGINE: Any = torch.autograd.Variable._execution_engine


class LastGradient:
    """Calls `mark` when the last parameter has its gradient, and when that backward pass has ended.

    `take_marks` returns both marks once, and None for a missing one. The first backward pass shows which parameter is
    last. The hooks of the others are then removed, since each costs time.
    """

    def __init__(self, mark: Callable[[], object]) -> None:
        self._mark = mark
        self._hooks: dict[int, Any] = {}
        self._watched: set[int] = set()  # optimizers
        self._candidates: set[int] = set()  # parameters that may be the last
        self._last: torch.Tensor | None = None
        self._marks: tuple[object, object] = (None, None)

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Find the last parameter of an optimizer on its first step, and watch it from then on."""
        if self._candidates and self._last is not None:
            for key in self._candidates - {id(self._last)}:
                self._hooks.pop(key).remove()
            self._candidates = set()
        if id(optimizer) in self._watched:
            return
        self._watched.add(id(optimizer))
        for parameter in (weight for group in optimizer.param_groups for weight in group["params"]):
            if parameter.requires_grad and parameter.is_leaf and id(parameter) not in self._hooks:
                self._hooks[id(parameter)] = parameter.register_post_accumulate_grad_hook(self._gradient_ready)
                self._candidates.add(id(parameter))

    def _gradient_ready(self, parameter: torch.Tensor) -> None:
        if self._candidates:
            self._last = parameter
        elif not (parameter.is_cuda and torch.cuda.is_current_stream_capturing()):
            self._marks = self._mark(), None
            # DDP queues its waiting callback right after this one, so a callback queued by this one runs after DDP's.
            ENGINE.queue_callback(lambda: ENGINE.queue_callback(self._backward_ended))

    def _backward_ended(self) -> None:
        self._marks = self._marks[0], self._mark()

    def take_marks(self) -> tuple[object, object]:
        marks, self._marks = self._marks, (None, None)
        return marks

    def remove_hooks(self) -> None:
        """Remove all hooks."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks = {}


@contextmanager
def optimizer_steps(on_step: Callable[[torch.optim.Optimizer], None]) -> Iterator[None]:
    """Call `on_step` before each step of any optimizer, except for steps that compute gradients in a closure."""

    def pre_hook(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("closure") is None and not any(callable(argument) for argument in args[1:]):
            on_step(optimizer)

    hook = register_optimizer_step_pre_hook(pre_hook)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def batches(on_batch: Callable[[], None]) -> Iterator[None]:
    """Call `on_batch` after each batch of any DataLoader of this process."""
    iterator = dataloader._BaseDataLoaderIter
    original = iterator.__next__

    def next_and_report(self: Any) -> Any:
        batch = original(self)
        on_batch()
        return batch

    iterator.__next__ = next_and_report  # type: ignore[method-assign]
    try:
        yield
    finally:
        iterator.__next__ = original  # type: ignore[method-assign]
