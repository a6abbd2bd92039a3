"""Marks around the exchanges of a model that PyTorch's `fully_shard` shards over all processes.

Each layer gathers its weights in both passes, and reduces its gradients before any of them is ready, so the marks of
`step_marks` see nothing. In all of these exchanges a rank waits for later ranks. PyTorch has no hook around them, so
its methods are wrapped; their names are the same from 2.6 to 2.15. On a GPU both marks are on the computing stream,
which waits for the exchange's stream. So the part of an exchange that overlaps computing does not count.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

LISTENING: weakref.WeakSet[ShardedExchanges] = weakref.WeakSet()  # weak: a training that fails may not call `stop`
GROUP_METHODS = ("pre_forward", "pre_backward", "post_backward")
STATE_METHODS = ("_root_post_backward_final_callback",)  # waits for the last gradients


class ShardedExchanges:
    """Calls `mark` before and after each exchange; `take_pairs` returns these pairs since the previous call."""

    def __init__(self, mark: Callable[[], object]) -> None:
        self._mark = mark
        self._pairs: list[tuple[object, object]] = []
        self._is_within = False  # one of the methods may call another
        self._watched: set[int] = set()  # optimizers

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Mark exchanges from now on if the optimizer's parameters are sharded."""
        if id(optimizer) in self._watched:
            return
        self._watched.add(id(optimizer))
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        if any(type(parameter).__name__ == "DTensor" for parameter in parameters):  # importing the class is slow
            _wrap_methods()
            LISTENING.add(self)

    def mark_around(self, exchange: Callable[[], Any]) -> Any:
        """Call `exchange` between two marks."""
        if self._is_within:
            return exchange()
        self._is_within = True
        before = self._mark()
        try:
            return exchange()
        finally:
            self._pairs.append((before, self._mark()))
            self._is_within = False

    def take_pairs(self) -> list[tuple[object, object]]:
        pairs, self._pairs = self._pairs, []
        return pairs

    def stop(self) -> None:
        """Mark no further exchanges."""
        LISTENING.discard(self)


@functools.cache
def _wrap_methods() -> None:
    """Make FSDP's methods call all of LISTENING. They stay wrapped; without listeners that costs a function call."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group, _fsdp_state

    owners: tuple[tuple[Any, tuple[str, ...]], ...] = (
        (_fsdp_param_group.FSDPParamGroup, GROUP_METHODS), (_fsdp_state.FSDPState, STATE_METHODS),
    )  # fmt: skip
    for owner, names in owners:
        for name in names:
            if hasattr(owner, name):
                setattr(owner, name, _with_marks(getattr(owner, name)))


def _with_marks(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = functools.partial(method, *args, **kwargs)
        for listener in tuple(LISTENING):
            call = functools.partial(listener.mark_around, call)
        return call()

    return wrapper
