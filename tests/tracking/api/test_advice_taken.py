"""An advice is tested by being taken: the run that follows it spends less of its time on what limited the first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tracking.lightning import time_trial
from tracking.measure.bottleneck import examine

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
SAMPLES = 480


class Slow(Dataset[Any]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.001)
        return torch.ones(64)


def limits(folder: Path, batches: Any, batch: int, evaluate_every: int = 10**9) -> dict[str, Any]:
    """What limits a small training on these batches, which evaluates by waiting."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))
    optimizer = torch.optim.Adam(net.parameters())
    with time_trial(
        {"loss": "<=-1"}, runs_dir=str(folder), offline=True, device="cpu", log_every_n_steps=10,
        system_metrics_interval_sec=0.2,
    ) as trial:  # fmt: skip
        for place, rows in enumerate(batches, 1):
            optimizer.zero_grad()
            loss = net(rows).square().mean()
            loss.backward()
            optimizer.step()
            trial.step(batch, loss)
            if place % evaluate_every == 0:
                with trial.evaluation():
                    time.sleep(0.3)
                    trial.evaluate({"loss": 1.0})
    (run,) = folder.glob("2*")
    return examine(run).bottleneck


def made(number: int, batch: int) -> Iterator[torch.Tensor]:
    return (torch.ones(batch, 64) for _ in range(number))


def test_more_processes_that_load_shorten_the_wait_for_data(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = limits(tmp_path / "before", DataLoader(Slow(), batch_size=16), 16)
    assert before["cause"] == "data"
    assert "num_workers" in before["next"]
    printed = capfd.readouterr().out
    for heading in ("limited by: waiting for data", "why: steps waited", f"try first: {before['next']}"):
        assert f"timetrial: {heading}" in printed
    assert "more loading processes" in before["next"]  # behind a run alone, if the machine is busy now
    taken = limits(tmp_path / "taken", DataLoader(Slow(), batch_size=16, num_workers=2), 16)
    assert taken["shares"]["data"] < 0.8 * before["shares"]["data"]


def test_fewer_evaluations_leave_more_time_to_train(tmp_path: Path) -> None:
    before = limits(tmp_path / "before", made(100, 16), 16, evaluate_every=10)
    assert before["cause"] == "evaluation"
    assert "fewer evaluations" in before["next"]
    taken = limits(tmp_path / "taken", made(100, 16), 16, evaluate_every=100)
    assert taken["shares"]["evaluation"] < 0.8 * before["shares"]["evaluation"]


def test_a_larger_batch_updates_the_weights_less_often(tmp_path: Path) -> None:
    before = limits(tmp_path / "before", made(200, 1), 1)
    assert before["cause"] == "update"
    assert "batch_size" in before["next"]
    taken = limits(tmp_path / "taken", made(20, 512), 512)
    assert taken["shares"]["update"] < 0.8 * before["shares"]["update"]
