"""What the callback measures in a real, small training in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist

from conf.schema import PrecisionConfig, RunConfig
from tracking.measure.training import MeasuringCallback, NonFiniteLoss
from tracking.measure.training.step_timer import Chunk, StepTimer
from tracking.record import journal
from tracking.record.journal import Journal
from trainers.workload import TrialModule

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Line(TrialModule):
    """One weight; its loss becomes NaN at step `bad`, and its accuracy grows by 0.25 an epoch."""

    def __init__(self, bad: int = 0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.bad = bad

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        factor = float("nan") if self.trainer.global_step + 1 == self.bad else 1.0
        return self.weight.square() * factor

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        pass

    def metrics(self) -> dict[str, float]:
        return {"accuracy": 0.25 * (self.trainer.current_epoch + 1)}


class Batches:
    """A loader of so many samples each (a plain list would be a collection of loaders to Lightning)."""

    def __init__(self, *num_samples: int) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return len(self.num_samples)

    def __iter__(self) -> Iterator[dict[str, int]]:
        return iter([{"num_samples": value} for value in self.num_samples])


def trained(
    folder: Path, module: Line, state: dict[str, Any] | None = None, evaluated: Any = None, **options: Any
) -> MeasuringCallback:
    strategy = options.pop("strategy", "auto")
    config = RunConfig(gpus=0, log_every_n_steps=3, **options)
    config.model.optimizer.lr = 0.01
    config.model.metrics = {"accuracy": [0.0, 1.0]}
    config.model.targets = {config.dataset.name: {"accuracy": 0.5}}
    log = Journal(folder / "journal.jsonl")
    callback = MeasuringCallback(config, CPU, log, lambda trainer: None, lambda trainer: None, evaluated)
    if state is not None:
        callback.load_state_dict(state)
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=3, callbacks=[callback], barebones=True, strategy=strategy
    )
    try:
        trainer.fit(module, Batches(10, 10, 10, 10, 10, 10, 4), Batches(1))
    finally:
        log.close()
    return callback


def test_windows_end_with_the_epoch_and_hold_every_step_and_sample(tmp_path: Path) -> None:
    callback = trained(tmp_path, Line(), stop_at_target=False)
    assert [len(window.step_sec) for window in callback.meter.windows] == [1, 2, 3, 1] + [3, 3, 1] * 2
    assert [window.step for window in callback.meter.windows] == [1, 3, 6, 7, 10, 13, 14, 17, 20, 21]
    assert [window.samples for window in callback.meter.windows] == [10, 20, 30, 4] + [30, 30, 4] * 2
    events = journal.events(tmp_path / "journal.jsonl")
    assert [event.values["samples"] for event in events if event.key == "epoch_stop"] == [64] * 3
    windows = callback.meter.windows
    assert all(0 <= wait <= step for w in windows for wait, step in zip(w.wait_sec, w.step_sec, strict=True))


def test_it_is_known_whether_ddp_exchanges(tmp_path: Path) -> None:
    for strategy in ("ddp", "auto"):
        (tmp_path / strategy).mkdir()
        callback = trained(tmp_path / strategy, Line(), strategy=strategy)
        assert callback.meter.is_ddp == (strategy == "ddp")


def test_the_journals_windows_are_those_of_the_callback(tmp_path: Path) -> None:
    callback = trained(tmp_path, Line())
    rows = [event.values for event in journal.events(tmp_path / "journal.jsonl") if event.key == "throughput_window"]
    assert [(row["step"], row["samples"]) for row in rows] == [(w.step, w.samples) for w in callback.meter.windows]
    for row, window in zip(rows, callback.meter.windows, strict=True):
        assert row["step_ms"] == pytest.approx([1e3 * value for value in window.step_sec], abs=1e-4)


@pytest.mark.parametrize(("stops", "epochs"), [(True, 2), (False, 3)])
def test_it_stops_at_the_target_or_goes_on(tmp_path: Path, stops: bool, epochs: int) -> None:
    trained(tmp_path, Line(), stop_at_target=stops)
    events = journal.events(tmp_path / "journal.jsonl")
    assert sum(event.key == "eval_accuracy" for event in events) == epochs
    assert events[-1].values == {"status": "success"}


def test_what_is_done_with_an_evaluation_is_on_no_clock_at_the_target_and_counts_as_evaluation_before(
    tmp_path: Path,
) -> None:
    def evaluated(trainer: pl.Trainer, module: Line, metrics: dict[str, float]) -> None:
        Journal(tmp_path / "journal.jsonl").event("copied", **metrics)

    trained(tmp_path, Line(), evaluated=evaluated)
    keys = [event.key for event in journal.events(tmp_path / "journal.jsonl")]
    around = [keys[place - 1 : place + 2] for place, key in enumerate(keys) if key == "copied"]
    assert around == [["eval_accuracy", "copied", "eval_stop"]] * 2


def test_it_goes_on_from_what_a_checkpoint_has_of_it(tmp_path: Path) -> None:
    before = trained(tmp_path, Line(), stop_at_target=False)
    after = trained(tmp_path, Line(), before.state_dict(), stop_at_target=False)
    # All but the first, in which data is read and caches fill anew.
    assert [window.step for window in after.meter.windows] == [21 + step for step in (6, 7, 10, 13, 14, 17, 20, 21)]
    assert after.meter.samples == 2 * before.meter.samples == 2 * 3 * 64
    with pytest.raises(NonFiniteLoss, match=r"nan at step 26 "):
        trained(tmp_path, Line(bad=5), before.state_dict())


def test_lightning_finds_its_state_in_a_checkpoint_from_before_its_class_was_renamed(tmp_path: Path) -> None:
    saved: list[Any] = []

    def save(trainer: pl.Trainer, module: Line, metrics: dict[str, float]) -> None:
        saved.append(trainer._checkpoint_connector.dump_checkpoint(weights_only=False))

    config = trained(tmp_path, Line(), evaluated=save)._config
    (key,) = (key for key, state in saved[-1]["callbacks"].items() if "reached" in state)
    state = saved[-1]["callbacks"].pop(key)
    torch.save(saved[-1] | {"callbacks": {"TrialCallback": state}}, tmp_path / "old.ckpt")
    callback = MeasuringCallback(config, CPU, None, lambda trainer: None, lambda trainer: None)
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=2, callbacks=[callback], barebones=True)
    trainer.fit(Line(), Batches(10, 4), Batches(1), ckpt_path=tmp_path / "old.ckpt", weights_only=True)
    assert callback.meter.step >= state["step"] > 0
    assert callback.meter.samples >= state["samples"] > 0


def test_it_remembers_that_the_target_was_reached(tmp_path: Path) -> None:
    state = trained(tmp_path, Line(), stop_at_target=False).state_dict()
    assert state["reached"]
    trained(tmp_path, Line(), state, target=0.9, stop_at_target=False)
    assert journal.events(tmp_path / "journal.jsonl")[-1].values == {"status": "success"}


@pytest.mark.parametrize("bad", [1, 3, 5, 14])
def test_a_nan_stops_the_run_and_names_its_step(tmp_path: Path, bad: int) -> None:
    with pytest.raises(NonFiniteLoss, match=rf"nan at step {bad} .*up to 0\.\d+, is probably too high"):
        trained(tmp_path, Line(bad))


@pytest.mark.parametrize(("precision", "names_another"), [("fp16", True), ("bf16", False)])
def test_a_nan_in_fp16_names_another_precision(tmp_path: Path, precision: str, names_another: bool) -> None:
    with pytest.raises(NonFiniteLoss, match=r"give a lower model\.optimizer\.lr") as error:
        trained(tmp_path, Line(2), precision=PrecisionConfig(precision))
    assert ("give precision=bf16" in str(error.value)) is names_another


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_a_gpu_steps_are_timed_on_its_own_clock_and_losses_arrive() -> None:
    device = torch.device("cuda", 0)
    timer = StepTimer(device)
    work = torch.randn(4096, 4096, device=device)
    for _ in range(3):
        work @ work
    torch.cuda._sleep(4_000_000_000)  # some 2 s, in which the host launches all that follows, however slow it is
    chunk = Chunk(timer.mark())
    for index in range(4):
        if index == 2:
            torch.cuda._sleep(20_000_000)  # the device waits some 10 ms for this step's data
        chunk.ready_marks.append(timer.mark())
        for _ in range(10):
            work @ work
        chunk.losses.append(torch.full((), float(index), device=device))
        chunk.done_marks.append(timer.mark())
    steps, waits, losses = timer.read(chunk)[:3]
    assert losses.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert all(steps > 0)
    assert waits[2] > 0.005
    assert all(waits[index] < 0.002 for index in (0, 1, 3))
    assert steps[2] > waits[2]
