"""A batch that does not fit is answered with about the one that would."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.trainers.models import test_gnmt, test_gpt
from tests.trainers.models.test_transformer import text
from trainers.loop import batch_size, ddp
from trainers.loop.warmup.captured_steps import Captured, CapturedSteps
from trainers.workload import TrialModule

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
GIB = 2**30
NOTHING: Any = TrialModule()
CPU = torch.device("cpu")


def peaks(monkeypatch: pytest.MonkeyPatch, base: float, of_a_sample: float, total: float) -> None:
    """A device of `total` bytes, on which a step takes `base` and `of_a_sample` for each sample."""
    monkeypatch.setattr(batch_size, "_peak", lambda module, data, size, *rest: base + of_a_sample * size)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=total))


@pytest.mark.parametrize(
    ("base", "of_a_sample", "fits"),
    [(10 * GIB, GIB, 80), (10 * GIB, 100 * GIB, 0), (99 * GIB, GIB, 0), (70 * GIB, 4 * GIB, 5), (0, 7 * GIB, 8)],
)
def test_the_estimate_goes_up_to_nine_tenths_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, base: float, of_a_sample: float, fits: int
) -> None:
    peaks(monkeypatch, base, of_a_sample, 100 * GIB)
    assert batch_size.batch_that_fits(NOTHING, NOTHING, CPU, nullcontext) == fits


@pytest.mark.parametrize(("of_a_sample", "words"), [(GIB, "about batch_size=80 would fit"), (1e15, "no batch would")])
def test_the_error_names_the_batch_and_keeps_its_kind(
    monkeypatch: pytest.MonkeyPatch, of_a_sample: float, words: str
) -> None:
    peaks(monkeypatch, 10 * GIB, of_a_sample, 100 * GIB)
    with (
        pytest.raises(torch.OutOfMemoryError, match=f"batch_size=512 does not fit into the GPU's memory; {words}"),
        batch_size.naming_the_batch_that_fits(NOTHING, NOTHING, 512, CPU, nullcontext),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")


@pytest.mark.parametrize(
    ("gib_of_a_token", "words"),
    [
        (1.0, r"about model\.hparams\.micro_batch_size=80 would fit"),  # 5 sequences of 16, and not 6, make up 20
        (2.5, r"about model\.hparams\.micro_batch_size=32 would fit"),
        (9.0, "no batch would fit"),
    ],
)
def test_of_a_language_model_it_is_made_of_sequences_and_divides_the_batch(
    monkeypatch: pytest.MonkeyPatch, gib_of_a_token: float, words: str
) -> None:
    peaks(monkeypatch, 0, gib_of_a_token * GIB, 110 * GIB)
    module = test_gpt.model(micro_batch_size=160)
    with (
        pytest.raises(torch.OutOfMemoryError, match=rf"^model\.hparams\.micro_batch_size=160 does not fit .*; {words}"),
        batch_size.naming_the_batch_that_fits(module, test_gpt.language(), 320, CPU, nullcontext),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory.")


def test_other_errors_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(ValueError, match="other"),
        batch_size.naming_the_batch_that_fits(NOTHING, NOTHING, 512, CPU, nullcontext),
    ):
        raise ValueError("other")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU on which a step takes a MiB, and one of twice the size two."""
    peaks = iter((2**20, 2**21))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: next(peaks))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=GIB))


@pytest.mark.usefixtures("counted")
def test_the_smaller_batches_are_tried_without_captured_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of each shape keeps gradients, and all keep the memory of the batch that did not fit."""
    translator = test_gnmt.module(graph_steps=True)
    steps, gradient, replays = CapturedSteps(translator, nullcontext), torch.ones(3), list[None]()
    steps._captured[()] = steps._now = Captured(lambda: replays.append(None), {}, torch.ones(()), [gradient])
    translator.training_step({}, 0)
    assert len(replays) == 1  # Any batch has the captured shape.
    kept, held = weakref.ref(gradient), list[Any]()
    del gradient
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: held.append(kept()))
    with (
        pytest.raises(torch.OutOfMemoryError, match=r"about batch_size=\d+ would fit"),
        batch_size.naming_the_batch_that_fits(translator, text(), 10**6, CPU, nullcontext),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory.")
    assert len(replays) == 1
    assert held == [None, None]


class Doubled(TrialModule):
    """A step of two parameters; the second's gradient, which is ready first, may end it for want of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
        self.fails = False

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x = batch["x"].sum() * self.first
        if self.fails:
            x.register_hook(self.run_out)
        return (x * self.last).sum()

    def forward(self, batch: Any) -> torch.Tensor:
        return self.training_step(batch, 0)

    def run_out(self, gradient: torch.Tensor) -> None:
        self.fails = False
        raise torch.OutOfMemoryError("CUDA out of memory.")


class Named(Doubled):
    """It returns its loss by name, as Lightning allows."""

    def training_step(self, batch: Any, index: int) -> Any:
        return {"loss": super().training_step(batch, index)}


def test_where_a_step_may_not_be_tried_the_error_is_still_that_of_the_memory() -> None:
    data: Any = SimpleNamespace(example_batches=lambda size, device: [])
    with (
        pytest.raises(
            torch.OutOfMemoryError, match=r"batch_size=64 does not fit into the GPU's memory\. Next: give a smaller"
        ),
        batch_size.naming_the_batch_that_fits(NOTHING, data, 64, CPU, nullcontext),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.usefixtures("counted")
def test_a_loss_that_is_returned_by_name_is_tried() -> None:
    data: Any = SimpleNamespace(example_batches=lambda size, device: [{"x": torch.ones(size)}])
    with (
        pytest.raises(torch.OutOfMemoryError, match=r"about batch_size=\d+ would fit"),
        batch_size.naming_the_batch_that_fits(Named(), data, 10**6, CPU, nullcontext),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.usefixtures("counted")
def test_a_step_that_ran_out_amid_ddp_s_exchange_does_not_go_on_in_the_smaller_ones() -> None:
    """DDP would take the small step's gradients for the rest of those that it waits for."""
    data: Any = SimpleNamespace(example_batches=lambda size, device: [{"x": torch.ones(size)}])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        module = Doubled()
        wrapped = DistributedDataParallel(module, **ddp.options())
        module.fails = True
        with (
            pytest.raises(torch.OutOfMemoryError, match=r"about batch_size=\d+ would fit"),
            batch_size.naming_the_batch_that_fits(module, data, 10**6, CPU, nullcontext),
        ):
            wrapped(data.example_batches(4, CPU)[0]).backward()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("total", "words"),
    [
        (100 * GIB, "; a step alone would fit. Next: give a smaller batch_size, or compile=false"),
        (None, ". Next: give a smaller"),
    ],
)
def test_the_advice_does_not_name_what_was_asked_for_nor_what_could_not_be_tried(
    monkeypatch: pytest.MonkeyPatch, total: float | None, words: str
) -> None:
    def none_left(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory, once more.")

    peaks(monkeypatch, 10 * GIB, GIB, total or GIB)
    if total is None:
        monkeypatch.setattr(batch_size, "_peak", none_left)
    with (
        pytest.raises(torch.OutOfMemoryError, match=f"^batch_size=64 does not fit into the GPU's memory{words}"),
        batch_size.naming_the_batch_that_fits(NOTHING, NOTHING, 64, CPU, nullcontext),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")


class Squares(TrialModule):
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
    fits = batch_size.batch_that_fits(module, data, device, nullcontext)
    assert fits > 0
    module.training_step(data.example_batches(fits, device)[0], 0).backward()
    with pytest.raises(torch.OutOfMemoryError):
        module.training_step(data.example_batches(2 * fits, device)[0], 0).backward()
