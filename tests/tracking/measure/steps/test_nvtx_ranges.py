"""Ranges that name the parts of a training for Nsight Systems."""

from __future__ import annotations

import pytest
import torch

from conf.launch_options import ProfileConfig
from conf.schema import ConfigError, RunConfig
from tracking.measure.steps import Ranges, nvtx_ranges
from tracking.measure.training import Meter, Ranks
from tracking.measure.training.exchange import ExchangeTimer
from tracking.request.output_checks import check_profile

CPU = torch.device("cpu")


class Told:
    """Keeps what was begun and ended, in place of NVTX."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.depth = 0

    def push(self, name: str) -> None:
        self.words.append("  " * self.depth + name)
        self.depth += 1

    def pop(self) -> None:
        self.depth -= 1


def train(ranges: Ranges) -> None:
    meter, exchange = Meter(CPU, Ranks(), None, 2), ExchangeTimer(CPU)
    meter.ranges = exchange.ranges = ranges
    meter.start()
    for epoch in (1, 2):
        meter.epoch_num = epoch
        meter.event("epoch_start")
        meter.open()
        for place in (1, 2):
            meter.batch_ready(8)
            with exchange:
                pass
            meter.step_done(torch.tensor(1.0), place)
        meter.close()
        meter.event("epoch_stop")
        meter.event("eval_start")
        meter.event("eval_stop")


def test_epochs_steps_data_exchange_and_evaluations_lie_in_each_other() -> None:
    told = Told()
    train(Ranges(told.push, told.pop))
    epochs = [
        [f"epoch {epoch}", "  data", f"  step {first}", "    exchange", "  data", f"  step {first + 1}", "    exchange",
         "  data", "evaluation"]
        for epoch, first in ((1, 1), (2, 3))
    ]  # fmt: skip
    assert told.words == [word for epoch in epochs for word in epoch]
    assert told.depth == 0


def test_without_the_option_nothing_is_asked_of_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(torch.cuda.nvtx, "range_push", refuse)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", refuse)
    train(nvtx_ranges(False))
    with pytest.raises(AssertionError):
        train(nvtx_ranges(True))


@pytest.mark.parametrize("gpus", [0, 1])
def test_it_is_refused_where_there_is_no_gpu(gpus: int) -> None:
    config = RunConfig(gpus=gpus, profile=ProfileConfig(nvtx=True))
    if gpus:
        check_profile(config)
        return
    with pytest.raises(ConfigError, match=r"profile.nvtx=true: .*give gpus=1"):
        check_profile(config)
