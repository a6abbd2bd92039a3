"""A graph of a step keeps its memory, so it is made only where the optimizer has room beside it."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from trainers.loop.warmup import CapturedSteps
from trainers.loop.warmup.graph_memory import GraphMemory
from trainers.workload import TrialModule

HELD, GIB = 10, 2**30  # weights and the optimizer's state, in GiB


class Device:
    """Stands in for PyTorch's counts of a GPU's memory, in GiB."""

    def __init__(self, total: float) -> None:
        self.total, self.peak = total, 0.0

    def reset(self, device: object) -> None:
        self.peak = HELD

    def reach(self, most: float) -> None:
        self.peak = max(self.peak, most)


@pytest.mark.parametrize(("total", "fits"), [(80, True), (60, False)])
def test_a_step_s_graph_needs_room_beside_the_optimizer_s_highest_moment(
    total: float, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(total)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", device.reset)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: device.peak * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: HELD * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=device.total * GIB))
    memory = GraphMemory(torch.device("cuda", 0))
    device.reach(50)  # the first step's backward pass, whose memory the graph's is
    memory.backward_ended()
    device.reach(25)  # the optimizer's
    assert memory.has_room(lambda: device.reach(50)) is fits  # 25 + 40 of 72 or 54
    memory.backward_ended()
    assert device.peak == 50, "a run's own peak"


def test_on_a_cpu_there_is_room() -> None:
    calls = list[None]()
    memory = GraphMemory(torch.device("cpu"))
    memory.backward_ended()
    assert memory.has_room(lambda: calls.append(None))
    assert calls == [None]


class Line(TrialModule):
    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.ones(()))

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        return (self.slope * batch["x"]).sum()


def test_without_room_steps_stay_as_they_are_and_a_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(memory: GraphMemory, rehearse: object) -> bool:
        return False

    monkeypatch.setattr(GraphMemory, "has_room", no_room)
    line = Line()
    CapturedSteps(line, nullcontext).capture({"x": torch.ones(3)})
    loss = line.training_step({"x": torch.ones(3)}, 0)
    line.backward(loss)
    assert (float(loss.detach()), line.slope.grad) == (3, 3)
    assert "A CUDA graph of a step has no room" in caplog.text
