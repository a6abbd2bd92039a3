"""What may be logged, and how values become one; tests/launch/test_logged_values.py trains a workload that logs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from conf.schema import ConfigError
from tests.trainers import synchronization
from tracking.measure.training.logged import LoggedValues
from trainers.workload import TrialModule


class Module(TrialModule):
    """A module in a hook of the training, whose batch has 4 samples."""

    def __init__(self, logged: LoggedValues) -> None:
        super().__init__()
        self.logged = logged
        self._fabric = None
        self._trainer = SimpleNamespace(_results=SimpleNamespace(batch={"num_samples": 4}))  # type: ignore[assignment]
        self.enter("training_step")

    def enter(self, hook: str) -> Module:
        self._current_fx_name = hook
        return self


def recording(device: str = "cpu") -> Module:
    values = LoggedValues(torch.device(device), 1, has_journal=True)
    values.recording = True
    return Module(values)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (lambda module: module.log("time/to_accuracy_sec", 1.0), "that timetrial uses for its own"),
        (lambda module: module.log("train/loss", 1.0), "such as train/<name>"),
        (lambda module: module.log("eval/f1", 1.0), "that timetrial uses for its own"),
        (
            lambda module: module.log("throughput(tps)", 1.0),
            "MLflow does not accept the name. Allowed: up to 250 letters",
        ),
        (lambda module: module.log("a/../b", 1.0), "a path in its shortest form"),
        (lambda module: module.log("a", torch.zeros(3)), r"a tensor of shape \(3,\)"),
        (lambda module: module.log("a", "word"), "is str. Next: log a number or a tensor of one number"),
        (lambda module: module.log("a", 1.0, reduce_fx="median"), "reduce_fx=median. Allowed: mean, sum, min, max"),
        (lambda module: module.enter("validation_step").log("a", 1.0, on_step=True), "an evaluation has one value"),
        (lambda module: module.enter("on_train_epoch_end").log("a", 1.0, on_step=True), r"self.log\('a'\)"),
        (lambda module: module.enter("on_train_end").log("a", 1.0), "on_train_end"),
        (
            lambda module: (module.log("a", 1.0), module.enter("validation_step").log("a", 1.0)),
            "a is logged already, with other options, or by both training and evaluation",
        ),
    ],
)
def test_what_cannot_be_logged_is_refused_in_words(log: Callable[[Module], None], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        log(recording())


def test_it_is_refused_in_the_warm_up_already_where_values_do_not_count() -> None:
    module = recording()
    module.logged.recording = False
    module.enter("on_train_start").log("a", 1.0)
    with pytest.raises(ConfigError, match="world_size is a name that timetrial uses"):
        module.log("world_size", 1.0)
    assert module.logged.rest() == {}


@pytest.mark.parametrize(("reduce_fx", "expected"), [("mean", 7.0), ("sum", 12.0), ("min", 2.0), (torch.max, 10.0)])
def test_values_become_one_by_their_batches_samples(reduce_fx: Any, expected: float) -> None:
    module = recording()
    module.log("a", 2.0, reduce_fx=reduce_fx, batch_size=3)
    module.log("a", torch.tensor([10.0]), reduce_fx=reduce_fx, batch_size=5)
    assert module.logged.of_window(module.logged.take()) == {"a": expected}
    module.log("a", 3, reduce_fx=reduce_fx)
    assert module.logged.of_window(module.logged.take()) == {"a": 3.0}, "a window knows nothing of the one before"
    assert module.logged.of_epoch() == {}


def test_an_epochs_value_is_of_all_its_windows() -> None:
    module = recording()
    for value in (1.0, 3.0):
        module.log("a", value, on_epoch=True)
        assert module.logged.of_window(module.logged.take()) == {"a_step": value}
    assert module.logged.of_epoch() == {"a_epoch": 2.0}
    assert module.logged.of_epoch() == {}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_a_gpu_a_value_is_kept_without_waiting_and_as_it_was() -> None:
    module = recording("cuda")
    value = torch.zeros((), device="cuda")
    half = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    with synchronization.refused():
        torch.cuda._sleep(20_000_000)
        for number in range(3000):  # more than a block of pinned memory holds
            value.fill_(number)
            module.log("a", value)
            module.log("half", half)
    entries = module.logged.take()
    torch.cuda.synchronize()
    assert [float(kept) for options, kept, _ in entries if options.step_key == "a"] == list(range(3000))
    assert module.logged.of_window(entries) == {"a": 1499.5, "half": 0.0}
