"""Copies on a device and their way to the host. The CPU stands for the device."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from tests.trainers.processes import ALONE, CPU
from trainers.loop.saving import copies
from trainers.loop.saving.background import Job, Writer
from trainers.loop.saving.copies import ALIGNMENT, DeviceCopies, num_bytes, with_tensors


class Counted:
    """Allocates memory, and counts."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, size: int, **options: Any) -> torch.Tensor:
        options["pin_memory"] = False
        self.sizes.append(size)
        return torch.empty(size, **options)


def state(fill: float) -> dict[str, Any]:
    images = torch.full((2, 3, 4, 5), fill).to(memory_format=torch.channels_last)
    images[0, 1, 2, 3] = 7
    half = torch.full((3,), fill, dtype=torch.bfloat16)
    return {"images": images, "half": [half, torch.tensor(5)], "cut": torch.arange(12.0)[::2], "none": torch.ones(0)}


def same(copy: dict[str, Any], original: dict[str, Any]) -> bool:
    pairs = [(copy[name], original[name]) for name in ("images", "cut")]
    pairs += zip(copy["half"], original["half"], strict=True)
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)


@pytest.mark.parametrize("copy", [DeviceCopies(CPU).of, copies.copied])
def test_a_copy_shares_nothing_that_can_change(copy: Any) -> None:
    original = {"numbers": [1, 2.0, None], "nested": [[3], (4, [5])], "weight": torch.nn.Parameter(torch.ones(2))}
    taken = copy(original)
    original["numbers"][0] = original["nested"][0][0] = original["nested"][1][1][0] = 9
    with torch.no_grad():
        original["weight"].zero_()
    assert (taken["numbers"], taken["nested"]) == ([1, 2.0, None], [[3], (4, [5])])
    assert torch.equal(taken["weight"], torch.ones(2))
    assert not taken["weight"].requires_grad


def test_memory_is_allocated_once_and_holds_the_newest_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PIECE_BYTES", 300)
    counted = Counted()
    kept = DeviceCopies(CPU, counted)
    room = num_bytes(state(0.0), ALIGNMENT)
    kept.make_room(room)
    assert counted.sizes == [room, room, 300], "device, host, and the piece between them"
    for fill in (1.0, 2.0, 3.0):
        live = state(fill)
        taken = kept.of(live)
        live["images"].zero_()
        live["half"][0].zero_()
        assert same(kept.on_host(taken), state(fill))
    assert len(counted.sizes) == 3
    host = kept.on_host(taken)
    assert host["images"].is_contiguous(memory_format=torch.channels_last)
    assert host["images"].untyped_storage().nbytes() == host["images"].nbytes, "torch.save writes whole storages"
    assert host["images"].data_ptr() != taken["images"].data_ptr()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_copies_of_a_gpu_come_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PIECE_BYTES", 300)
    kept = DeviceCopies(torch.device("cuda", 0))
    for fill in (1.0, 2.0):
        taken = kept.of(with_tensors(state(fill), lambda tensor: tensor.cuda(), deep=False))
        assert taken["images"].is_cuda
        assert same(kept.on_host(taken), state(fill))


def test_a_state_that_grows_or_changes_its_shapes_is_held_too() -> None:
    kept = DeviceCopies(CPU, Counted())
    for live in ({"a": torch.ones(3)}, {"a": torch.ones(3), "b": torch.ones(500)}, {"b": torch.ones(2, 2) * 3}):
        host = kept.on_host(kept.of(live))
        assert host.keys() == live.keys()
        assert all(torch.equal(host[name], live[name]) for name in live)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A device that passes the step when it is told to."""
    passed = threading.Event()
    event = SimpleNamespace(synchronize=lambda: passed.wait(30), elapsed_time=lambda later: 0.25)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: mock.Mock())
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    return SimpleNamespace(passed=passed)


def test_training_goes_on_while_the_device_is_behind(tmp_path: Path, device: SimpleNamespace) -> None:
    counted, writer = Counted(), Writer(ALONE, "place")
    writer._stream, writer._on_device = mock.Mock(), DeviceCopies(CPU, counted)
    weights = torch.ones(1000)
    writer.make_room(2 * num_bytes(weights, ALIGNMENT))
    for step in (1, 2, 3):
        device.passed.clear()
        content = {"state_dict": {"weights": weights, "again": weights}, "callbacks": {}}
        job = Job(tmp_path / "checkpoints" / f"epoch0-step{step}.ckpt", step, content, {"random": {}})
        job.late = {"thread": lambda: threading.current_thread().name}
        assert writer.write(job, in_background=True) is True, "it does not wait"
        assert not job.path.exists()
        weights += 1
        device.passed.set()
        writer.wait()
        (written,) = writer.written()
        assert written.error == ""
        assert written.parts.keys() == {
            "device_ms", "device_copy_ms", "to_host_ms", "late_ms", "gather_ms", "file_ms", "prune_ms",
        }  # fmt: skip
        assert sum(ms for part, ms in written.parts.items() if part != "device_copy_ms") <= 1e3 * written.sec + 1
        read = torch.load(job.path, weights_only=True)
        assert bool((read["state_dict"]["weights"] == step).all())
        assert read["callbacks"]["place"]["thread"] == ["checkpoint"]
    assert len(counted.sizes) == 3
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["epoch0-step2.ckpt", "epoch0-step3.ckpt"], "the last two"
