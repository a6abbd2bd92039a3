"""NVTX ranges of a training: Nsight Systems shows epochs, steps, data, exchange and evaluation by name.

Off by default: `profile.nvtx=true`. Ranges are on the training thread and nest.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


class Ranges:
    """The open ranges, innermost last. Without `push` and `pop`, nothing happens."""

    def __init__(self, push: Callable[[str], object] | None = None, pop: Callable[[], object] | None = None) -> None:
        self._push, self._pop = push, pop
        self._open: list[str] = []

    def enter(self, kind: str, number: int | None = None) -> None:
        """Begin a range: `step 17`."""
        if self._push is not None:
            self._open.append(kind)
            self._push(kind if number is None else f"{kind} {number}")

    def leave(self, kind: str) -> None:
        """End the newest range of this kind and all ranges within it; nothing if no such range is open."""
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
        """End the wait for data and begin a step, whose batch is ready."""
        self.leave("data")
        self.enter("step", number)

    def end_step(self) -> None:
        """End the step and begin the wait for the next batch."""
        self.leave("step")
        self.enter("data")

    def note(self, event: str) -> None:
        """Begin or end the range of an evaluation at the journal's events."""
        if event == "eval_start":
            self.enter("evaluation")
        elif event == "eval_stop":
            self.leave("evaluation")


def nvtx_ranges(is_enabled: bool) -> Ranges:
    """PyTorch's NVTX ranges if `is_enabled`, else ranges that do nothing."""
    return Ranges(torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop) if is_enabled else Ranges()
