"""Marks within a step: where the last gradient is there, where the backward pass ends, and where the optimizer begins.

DDP waits at the end of the backward pass for the exchange of gradients, and with that for the ranks that come later.
Whoever averages gradients himself does so before the optimizer begins. A clock around whole steps does not show that
wait, since in the exchange all ranks become equally slow. From the optimizer's beginning to the end of the step is the
update of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

ENGINE: Any = torch.autograd.Variable._execution_engine


class LastGradient:
    """Calls `mark` when the parameter that gets its gradient last has it, and when that backward pass has ended.

    `taken` returns both marks, once; None where they were not seen.

    Which parameter that is, the first backward pass shows. Hooks of the others are then removed, since each costs time.
    """

    def __init__(self, mark: Callable[[], object]) -> None:
        self._mark = mark
        self._hooks: dict[int, Any] = {}
        self._watched: set[int] = set()  # optimizers
        self._asked: set[int] = set()  # parameters whose order is not known yet
        self._last: torch.Tensor | None = None
        self._marked: tuple[object, object] = (None, None)

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Find the last parameter of an optimizer that steps for the first time, and keep it from then on."""
        if self._asked and self._last is not None:
            for key in self._asked - {id(self._last)}:
                self._hooks.pop(key).remove()
            self._asked = set()
        if id(optimizer) in self._watched:
            return
        self._watched.add(id(optimizer))
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            if parameter.requires_grad and parameter.is_leaf and id(parameter) not in self._hooks:
                self._hooks[id(parameter)] = parameter.register_post_accumulate_grad_hook(self._came)
                self._asked.add(id(parameter))

    def _came(self, parameter: torch.Tensor) -> None:
        if self._asked:
            self._last = parameter
        elif not (parameter.is_cuda and torch.cuda.is_current_stream_capturing()):
            self._marked = self._mark(), None
            # DDP's own callback, which waits, is queued right after this one; what this one queues comes behind it.
            ENGINE.queue_callback(lambda: ENGINE.queue_callback(self._ended))

    def _ended(self) -> None:
        self._marked = self._marked[0], self._mark()

    def taken(self) -> tuple[object, object]:
        marked, self._marked = self._marked, (None, None)
        return marked

    def forget(self) -> None:
        """Remove all hooks."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks = {}


@contextmanager
def optimizer_steps(begins: Callable[[torch.optim.Optimizer], None]) -> Iterator[None]:
    """Call `begins` before each step of any optimizer; not of one that computes its gradients itself, by a closure."""

    def noted(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("closure") is None and not any(callable(argument) for argument in args[1:]):
            begins(optimizer)

    hook = register_optimizer_step_pre_hook(noted)
    try:
        yield
    finally:
        hook.remove()
