"""A batch that does not fit is answered with about the one that would."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainers.loop import memory

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
GIB = 2**30
NOTHING: Any = None


def peaks(monkeypatch: pytest.MonkeyPatch, base: float, of_a_sample: float, total: float) -> None:
    """A device of `total` bytes, on which a step takes `base` and `of_a_sample` for each sample."""
    monkeypatch.setattr(memory, "_peak", lambda module, data, size, *rest: base + of_a_sample * size)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=total))


@pytest.mark.parametrize(
    ("base", "of_a_sample", "fits"),
    [(10 * GIB, GIB, 80), (10 * GIB, 100 * GIB, 0), (99 * GIB, GIB, 0), (70 * GIB, 4 * GIB, 5), (0, 7 * GIB, 8)],
)
def test_the_estimate_goes_up_to_nine_tenths_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, base: float, of_a_sample: float, fits: int
) -> None:
    peaks(monkeypatch, base, of_a_sample, 100 * GIB)
    assert memory.batch_that_fits(NOTHING, NOTHING, torch.device("cpu"), nullcontext) == fits


@pytest.mark.parametrize(("of_a_sample", "words"), [(GIB, "about batch_size=80 would fit"), (1e15, "no batch would")])
def test_the_error_names_the_batch_and_keeps_its_kind(
    monkeypatch: pytest.MonkeyPatch, of_a_sample: float, words: str
) -> None:
    peaks(monkeypatch, 10 * GIB, of_a_sample, 100 * GIB)
    with (
        pytest.raises(torch.OutOfMemoryError, match=f"batch_size=512 does not fit into the GPU's memory; {words}"),
        memory.naming_the_batch_that_fits(NOTHING, NOTHING, 512, torch.device("cpu"), nullcontext),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")


def test_other_errors_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(ValueError, match="other"),
        memory.naming_the_batch_that_fits(NOTHING, NOTHING, 512, torch.device("cpu"), nullcontext),
    ):
        raise ValueError("other")


class Squares(torch.nn.Module):
    """A step that takes a GiB a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        return (batch["images"] * self.scale).sum()


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_the_batch_it_names_fits_and_twice_as_much_does_not() -> None:
    device = torch.device("cuda", 0)
    data: Any = SimpleNamespace(
        example_batches=lambda size, where: [{"images": torch.empty(size, GIB // 8, device=where)}]
    )
    module: Any = Squares().to(device)
    fits = memory.batch_that_fits(module, data, device, nullcontext)
    assert fits > 0
    module.training_step(data.example_batches(fits, device)[0], 0).backward()
    with pytest.raises(torch.OutOfMemoryError):
        module.training_step(data.example_batches(2 * fits, device)[0], 0).backward()
