"""A training that goes on after any step ends as one that was not interrupted, to the last bit."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from conf.evaluation import Intervals
from conf.schema import ConfigError, RunConfig
from tests.trainers.processes import CPU
from tracking.measure.training import MeasuringCallback, plan_evaluations
from tracking.measure.training.energy import EnergyMeter
from tracking.record import Journal, attempts, checkpoints, documents, journal
from trainers.data.digits import digits
from trainers.loop import evaluation_times
from trainers.loop.saving import checkpoint, copies
from trainers.loop.saving.background import Job, Writer
from trainers.loop.saving.checkpoint import CheckpointCallback
from trainers.loop.saving.copies import copied, has_room, num_bytes, on_host
from trainers.loop.saving.interval import Interval
from trainers.workload import Shard, TrialModule

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint"),
]
SHARD = Shard(0, 1, CPU)
EPOCHS, BATCH = 3, 200
STEPS = 6  # an epoch of 1,150 samples; its last batch is filled up


EVERY_FOURTH = Intervals(every_steps=4)


@pytest.fixture(scope="module", autouse=True)
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Restless(TrialModule):
    """Depends on every random number, on batches' order, and on what an evaluation leaves behind."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 10))
        self.register_buffer("evaluated", torch.zeros(()))
        self.losses: list[float] = []
        self.labels: list[list[int]] = []

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        noise = random.random() + np.random.random() + torch.rand(())
        losses = nn.functional.cross_entropy(self.net(batch["images"].float()), batch["labels"], reduction="none")
        loss = (losses * batch["weights"]).sum() * noise
        for reduction in ("mean", "sum", "max"):
            self.log(f"of_epoch/{reduction}", loss.detach(), on_step=False, on_epoch=True, reduce_fx=reduction)
        self.losses.append(float(loss.detach()))
        self.labels.append(batch["labels"].tolist())
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        assert isinstance(self.evaluated, torch.Tensor)
        self.evaluated += torch.rand(())

    def metrics(self) -> dict[str, float]:
        return {"accuracy": 0.01 * self.trainer.global_step}


@dataclass
class Trained:
    module: Restless
    folder: Path
    events: list[journal.Record] = field(default_factory=list)

    def kept(self) -> list[str]:
        return [checkpoint.path.name for checkpoint in checkpoints.in_folder(self.folder)]


class Interrupted(Exception):
    pass


class Stop(pl.Callback):
    """Ends a training before a step, as a signal would."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self._step:
            raise Interrupted


def trained(
    folder: Path, every: int = 2, asked: Intervals = EVERY_FOURTH, stop: int = -1,
    checkpoint: Path | None = None, epochs: int | None = None, device: str = "cpu", max_epochs: int = EPOCHS,
) -> Trained:  # fmt: skip
    pl.seed_everything(3 if checkpoint is None else 4, verbose=False)
    config = RunConfig(gpus=0, log_every_n_steps=4, stop_at_target=False)
    config.model.optimizer.lr, config.model.metrics = 0.01, {"accuracy": [0.0, 1.0]}
    shard = Shard(0, 1, torch.device(device))
    log, module, loader = Journal(folder / "journal.jsonl"), Restless(), digits().train_loader(BATCH, 1, shard)
    callback = CheckpointCallback(folder, Interval(epochs, every), shard, log, loader)
    measuring = MeasuringCallback(config, shard.device, log, lambda trainer: None, lambda trainer: callback.finish())
    trainer = pl.Trainer(accelerator="cpu" if device == "cpu" else "gpu", devices=1, max_epochs=max_epochs,
                         callbacks=[measuring, Stop(stop)], barebones=True,
                         use_distributed_sampler=False)  # fmt: skip
    evaluation_times.follow(trainer, plan_evaluations(asked, STEPS, max_epochs, BATCH, limited=False))
    trainer.callbacks.append(callback)  # type: ignore[attr-defined]
    held_out: Any = digits().eval_loader(BATCH, shard)
    try:
        trainer.fit(module, loader, held_out, ckpt_path=checkpoint, weights_only=True)
    except Interrupted:
        assert callback._writer is not None
        callback._writer.wait()
    log.close()
    return Trained(module, folder, journal.events(folder / "journal.jsonl"))


def of_epochs(folder: Path) -> dict[tuple[str, int | None], float]:
    """The logged values of epochs by name and step; the last ones of a step that was trained twice."""
    rows = [record for record, _ in journal.read(folder / "journal.jsonl") if record.kind == "metrics"]
    values = {(key, row.step): row.values[key] for row in rows for key in row.values if key.startswith("of_epoch/")}
    assert len(values) == 3 * EPOCHS
    return values


Pair = Callable[..., tuple[Trained, Trained]]


@pytest.fixture(scope="module")
def goes_on_as_if_nothing(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Compare with an uninterrupted training. Tests of the same options share one."""
    in_one_go: dict[str, Trained] = {}

    def compared(tmp_path: Path, stop: int, **options: Any) -> tuple[Trained, Trained]:
        if str(options) not in in_one_go:
            in_one_go[str(options)] = trained(tmp_path_factory.mktemp("whole"), **options)
        whole = in_one_go[str(options)]
        return whole, resumed(whole, tmp_path, stop, **options)

    return compared


def resumed(whole: Trained, tmp_path: Path, stop: int, **options: Any) -> Trained:
    """A training that was interrupted and goes on: all of it is as in the one without a stop."""
    (tmp_path / "parts").mkdir()
    first = trained(tmp_path / "parts", stop=stop, **options)
    newest = checkpoints.newest(tmp_path / "parts")
    assert newest is not None
    trained_steps = newest.step or newest.epoch_num * STEPS
    assert stop - options.get("every", 2) <= trained_steps <= stop
    log = Journal(tmp_path / "parts" / "journal.jsonl")
    step = {"step": newest.step} if newest.step else {}
    log.event(attempts.RESUME, epoch_num=newest.epoch_num, **step, from_step=trained_steps, after="signal:9")
    log.close()
    rest = trained(tmp_path / "parts", checkpoint=newest.path, **options)
    assert [*first.module.losses[:trained_steps], *rest.module.losses] == whole.module.losses
    assert [*first.module.labels[:trained_steps], *rest.module.labels] == whole.module.labels
    for name, tensor in whole.module.state_dict().items():
        assert torch.equal(tensor, rest.module.state_dict()[name]), name
    assert of_epochs(rest.folder) == of_epochs(whole.folder)
    again = [event for event in attempts.split(rest.events)[-1] if event.values.get("step") == trained_steps]
    assert [event.key for event in again if event.key.startswith(("eval", "checkpoint"))] == [], "neither comes twice"
    return rest


def some(value: int, of: set[int]) -> Any:
    return value if value in of else pytest.param(value, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize("stop", [some(stop, {2, 4, 5, 6, 7, 8, 12, 17}) for stop in range(2, EPOCHS * STEPS)])
def test_it_goes_on_after_any_step(goes_on_as_if_nothing: Pair, tmp_path: Path, stop: int) -> None:
    """Evaluations come after steps 4, 8, 12, 16 and 18, checkpoints after every second: alone, together, at an end."""
    goes_on_as_if_nothing(tmp_path, stop)


@pytest.mark.parametrize(
    "options",
    [
        {"every": 5, "asked": Intervals()},
        {"every": 3, "asked": Intervals(every_steps=3)},
        {"every": 1, "asked": Intervals(every_steps=1)},
        {"every": 4, "asked": Intervals(), "epochs": 1},
    ],
)
@pytest.mark.parametrize("stop", [some(7, set()), 13])
def test_whatever_the_intervals(
    goes_on_as_if_nothing: Pair, tmp_path: Path, options: dict[str, Any], stop: int
) -> None:
    goes_on_as_if_nothing(tmp_path, stop, **options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_a_gpu_it_is_as_near_as_a_second_run(tmp_path: Path) -> None:
    """A GPU may add up in another order. The samples are the same ones all the same."""
    folders = [tmp_path / name for name in ("whole", "again", "parts")]
    for folder in folders:
        folder.mkdir()
    options: dict[str, Any] = {"device": "cuda:0", "max_epochs": 5}
    whole, again = (trained(folder, **options).module for folder in folders[:2])
    first = trained(folders[2], stop=9, **options).module
    newest = checkpoints.newest(folders[2])
    assert newest is not None
    assert newest.step == 8
    rest = trained(folders[2], checkpoint=newest.path, **options).module
    assert [*first.labels[:8], *rest.labels] == whole.labels == again.labels
    behind = slice(8, 28)
    apart = max(abs(a - b) for a, b in zip(whole.losses[behind], again.losses[behind], strict=True))
    resumed = [*first.losses[:8], *rest.losses][behind]
    assert len(resumed) == 20
    assert resumed == pytest.approx(whole.losses[behind], rel=0, abs=apart + 1e-5)


def test_the_history_is_that_of_one_go(goes_on_as_if_nothing: Pair, tmp_path: Path) -> None:
    whole, rest = goes_on_as_if_nothing(tmp_path, 9)
    history = attempts.history(rest.events)

    def counted(events: list[journal.Record]) -> list[tuple[str, Any, Any]]:
        keys = ("epoch_start", "epoch_stop", "eval_accuracy")
        kept = [event for event in events if event.key in keys]
        return [(event.key, event.values["epoch_num"], event.values.get("samples_count")) for event in kept]

    assert counted(history) == counted(whole.events)
    samples = [event.values["samples"] for event in history if event.key == "epoch_stop"]
    assert samples == [1150] * EPOCHS
    clocks = [event.clock_sec for event in history]
    assert clocks == sorted(clocks)


def test_two_are_kept_and_each_is_said_to_be_written(tmp_path: Path) -> None:
    run = trained(tmp_path)
    assert run.kept() == ["epoch2-step16.ckpt", "epoch2-step14.ckpt"]
    keys = [(event.key, event.values.get("step")) for event in run.events if event.key.startswith("checkpoint_")]
    within = [2, 4, 8, 10, 14, 16]
    for key in ("checkpoint_start", "checkpoint_stop", "checkpoint_saved"):
        assert [step for name, step in keys if name == key and step] == within
    assert not any("error" in event.values for event in run.events)
    (words,) = [record.values["checkpoints"] for record, _ in journal.read(tmp_path / "journal.jsonl")
                if record.kind == "tags" and "checkpoints" in record.values]  # fmt: skip
    assert words.startswith("beside the training, in 0 MB more of memory")


def test_the_parts_of_the_wait_and_of_the_writing_are_told(tmp_path: Path) -> None:
    run = trained(tmp_path, max_epochs=1)
    of_wait = ("journal", "wait", "figures", "state", "random", "collect", "copy")
    for key, parts in {"checkpoint_stop": of_wait, "checkpoint_saved": ("to_host", "file")}.items():
        told = [event.values for event in run.events if event.key == key]
        assert len(told) == 2
        assert all(values[f"{part}_ms"] >= 0 for values in told for part in parts)


def test_the_parts_add_up_to_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delay = 0.2

    def delay_in(owner: Any, name: str) -> None:
        plain = getattr(owner, name)

        def slow(*arguments: Any) -> Any:
            if name != "_write" or arguments[1].key == "checkpoint_start":
                time.sleep(delay)
            return plain(*arguments)

        monkeypatch.setattr(owner, name, slow)

    places = {
        "journal": (Journal, "_write"), "wait": (Writer, "wait"), "figures": (MeasuringCallback, "gather_state"),
        "random": (checkpoint, "random_states"), "copy": (Writer, "write"),
    }  # fmt: skip
    for owner, name in places.values():
        delay_in(owner, name)
    events = trained(tmp_path, max_epochs=1).events
    starts = {event.values.get("step"): event.clock_sec for event in events if event.key == "checkpoint_start"}
    stops = [event for event in events if event.key == "checkpoint_stop" and "step" in event.values]
    assert len(stops) == 2
    for stop in stops:
        parts = {name: value for name, value in stop.values.items() if name.endswith("_ms")}
        assert all(parts[f"{part}_ms"] >= 1e3 * delay for part in places)
        held_up_ms = 1e3 * (stop.clock_sec - starts[stop.values["step"]])
        assert sum(parts.values()) == pytest.approx(held_up_ms, abs=500 * delay)


def test_the_energy_is_read_by_the_thread_and_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML's counter takes milliseconds to read."""
    read: list[tuple[str, float]] = []

    def rank_joules(meter: EnergyMeter) -> float:
        read.append((threading.current_thread().name, meter.earlier_joules))
        return 5.0

    monkeypatch.setattr(EnergyMeter, "rank_joules", rank_joules)
    trained(tmp_path, stop=5)
    assert [name for name, _ in read] == ["checkpoint", "checkpoint"]
    newest = checkpoints.newest(tmp_path)
    assert newest is not None
    trained(tmp_path, checkpoint=newest.path, max_epochs=1)
    assert [before for _, before in read] == [0.0, 0.0, 5.0], "the last reading is that of the whole run"


def test_without_room_it_is_written_at_once_and_the_same(
    goes_on_as_if_nothing: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.loop.saving.checkpoint.has_room", lambda size, device: False)
    _, rest = goes_on_as_if_nothing(tmp_path, 9)
    said = [record.values for record, _ in journal.read(rest.folder / "journal.jsonl") if record.kind == "tags"]
    assert any("while the training waits" in str(values.get("checkpoints")) for values in said)


def test_a_disk_that_is_full_ends_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(documents, "replacing", fails)
    run = trained(tmp_path)
    assert len(run.module.losses) == EPOCHS * STEPS
    errors = [event.values.get("error") for event in run.events if event.key == "checkpoint_saved"]
    assert len(errors) == 6
    assert all("No space left" in str(error) for error in errors)


def test_what_is_written_is_what_the_step_left(tmp_path: Path) -> None:
    """Later steps change the tensors while the thread is at work."""
    writer = Writer(SHARD, "place")
    weights = torch.ones(1000, 1000)
    content = {"state_dict": {"weights": weights}, "callbacks": {}}
    writer.write(Job(tmp_path / "c" / "x.ckpt", 1, content, {"random": {}}), in_background=True)
    weights.zero_()
    writer.wait()
    read = torch.load(tmp_path / "c" / "x.ckpt", weights_only=True)
    assert bool((read["state_dict"]["weights"] == 1).all())
    assert read["callbacks"]["place"] == {"random": [{}]}
    (job,) = writer.written()
    assert (job.step, job.error, writer.written()) == (1, "", [])


def test_copies_share_no_memory_and_their_size_is_known() -> None:
    value = {"a": torch.zeros(3), "b": [torch.zeros(2, dtype=torch.float64), {"c": 1}], "d": (1, "x")}
    copy = copied(value)
    value["a"].fill_(1)  # type: ignore[attr-defined]
    value["b"][1]["c"] = 2  # type: ignore[index]
    assert float(copy["a"].sum()) == 0
    assert copy["b"][1] == {"c": 1}
    assert on_host(copy)["d"] == (1, "x")
    again = copied(value, copy)
    assert again["a"] is copy["a"], "it takes the memory of the one before"
    assert torch.equal(again["a"], torch.ones(3))
    assert again["b"][1] == {"c": 2}
    assert copied({"a": torch.zeros(4)}, copy)["a"].shape == (4,)
    assert num_bytes(value) == 3 * 4 + 2 * 8
    assert has_room(1, CPU)
    assert not has_room(2**60, CPU)
    assert copies.ROOM < 1


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (Interval(steps=18), r"checkpoint_every_steps=18: the run has only 18 steps.*give a smaller"),
        (Interval(steps=2), r"checkpoint_every_steps=2: the training's loader \(DataLoader\) cannot begin within"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_training(interval: Interval, words: str) -> None:
    loader: Any = DataLoader([1, 2])
    with pytest.raises(ConfigError, match=words):
        interval.check(EPOCHS, EPOCHS * STEPS, loader)
