"""The process that has all the data to itself, on the CPU, as most tests of loaders want it; and several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import BaseContext

import torch

from tests.support import forked
from trainers.data.loading.types import Shard

CPU = torch.device("cpu")
ALONE = Shard(0, 1, CPU)


def context() -> BaseContext:
    """Forks of a process that has imported PyTorch and Lightning; new processes where a GPU forbids forks."""
    return forked.server() if forked.possible() else multiprocessing.get_context("spawn")


def ranks(function: Callable[..., None], *arguments: object, number: int = 2) -> None:
    """Call `function(rank, *arguments)` in each of `number` processes, and raise what one of them raises."""
    method = context().get_start_method()
    torch.multiprocessing.start_processes(function, arguments, number, start_method=method)
