"""NVTX ranges of a training, by which Nsight Systems shows epochs, steps, data, exchange and evaluation by name.

Off by default: `profile.nvtx=true`. A range lies on the thread that trains, and holds those that begin within it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


class Ranges:
    """Ranges that are open, the innermost last; without `push` and `pop` none is made."""

    def __init__(self, push: Callable[[str], object] | None = None, pop: Callable[[], object] | None = None) -> None:
        self._push, self._pop = push, pop
        self._open: list[str] = []

    def enter(self, kind: str, number: int | None = None) -> None:
        """Begin a range: `step 17`."""
        if self._push is not None:
            self._open.append(kind)
            self._push(kind if number is None else f"{kind} {number}")

    def leave(self, kind: str) -> None:
        """End the newest range of this kind, and what is still open within it; nothing where none is open."""
        if self._pop is None or kind not in self._open:
            return
        while self._open:
            self._pop()
            if self._open.pop() == kind:
                return

    def begin_epoch(self, number: int) -> None:
        self.enter("epoch", number)
        self.enter("data")

    def begin_step(self, number: int) -> None:
        """The step's batch is there."""
        self.leave("data")
        self.enter("step", number)

    def end_step(self) -> None:
        """What follows waits for the next batch."""
        self.leave("step")
        self.enter("data")

    def note(self, event: str) -> None:
        """Take note of an event of the journal: an evaluation begins or ends."""
        if event == "eval_start":
            self.enter("evaluation")
        elif event == "eval_stop":
            self.leave("evaluation")


def nvtx_ranges(wanted: bool) -> Ranges:
    """Ranges of PyTorch's NVTX, or none."""
    return Ranges(torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop) if wanted else Ranges()
