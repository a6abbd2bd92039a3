"""An advice is tested by being taken: what follows it spends less of its time on what limited the run.

Both are compared within one run, ten steps of each in turn, so other processes on the machine slow both. Nothing is
sampled, so these cannot be named as the limit.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tracking.lightning import time_trial
from tracking.measure.bottleneck import examine
from tracking.record import journal, run_folder

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
WINDOW = 10


class Slow(Dataset[Any]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.ones(64)


def run_of(folder: Path, batches: Iterable[torch.Tensor], evaluate_every: int = 10**9) -> Path:
    """The folder of a small training on these batches, which evaluates by waiting."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))
    optimizer = torch.optim.Adam(net.parameters())
    with time_trial(
        {"loss": "<=-1"}, runs_dir=str(folder), offline=True, device="cpu", log_every_n_steps=WINDOW,
        system_metrics_interval_sec=0,
    ) as trial:  # fmt: skip
        for place, rows in enumerate(batches, 1):
            optimizer.zero_grad()
            loss = net(rows).square().mean()
            loss.backward()
            optimizer.step()
            trial.step(len(rows), loss)
            if place % evaluate_every == 0:
                with trial.evaluation():
                    time.sleep(0.3)
                    trial.evaluate({"loss": 1.0})
    (run,) = folder.glob("2*")
    return run


def limits(run: Path) -> dict[str, Any]:
    return examine(run).bottleneck


def made(number: int, batch: int) -> Iterator[torch.Tensor]:
    return (torch.ones(batch, 64) for _ in range(number))


def in_turn(first: Iterable[torch.Tensor], second: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Batches of both: a window of the first, a window of the second, and so on."""
    for side in cycle([iter(first), iter(second)]):
        begins = next(side, None)
        if begins is None:
            return
        yield begins
        yield from islice(side, WINDOW - 1)  # each only when its step asks for it


def shares(run: Path, part: str) -> list[float]:
    """The share of a part in the time of the first side's windows, and in that of the second side's."""
    seconds = [[0.0, 0.0], [0.0, 0.0]]
    for record, _ in journal.read(run / run_folder.JOURNAL):
        if record.key == "throughput_window":
            own = seconds[(record.values["step"] - 1) // WINDOW % 2]
            own[0] += record.values[part][0]
            own[1] += record.values["rank_ms"][0]
    return [of_part / whole for of_part, whole in seconds]


def test_more_processes_that_load_shorten_the_wait_for_data(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = limits(run_of(tmp_path / "before", DataLoader(Slow(160), batch_size=16)))
    assert before["cause"] == "data"
    assert "num_workers" in before["next"]
    printed = capfd.readouterr().out
    for heading in ("limited by: waiting for data", "why: steps waited", f"try first: {before['next']}"):
        assert f"timetrial: {heading}" in printed
    assert "more loading processes" in before["next"]
    loaders = (DataLoader(Slow(480), batch_size=16, num_workers=workers) for workers in (0, 2))
    alone, helped = shares(run_of(tmp_path / "both", in_turn(*loaders)), "rank_wait_ms")
    assert helped < 0.8 * alone


def test_fewer_evaluations_leave_more_time_to_train(tmp_path: Path) -> None:
    before = limits(run_of(tmp_path / "before", made(40, 16), evaluate_every=4))
    assert before["cause"] == "evaluation"
    assert "fewer evaluations" in before["next"]
    taken = limits(run_of(tmp_path / "taken", made(40, 16), evaluate_every=40))
    seconds = [run["shares"]["evaluation"] * run["total_sec"] for run in (before, taken)]
    assert seconds[1] < 0.5 * seconds[0]


def test_a_larger_batch_updates_the_weights_less_often(tmp_path: Path) -> None:
    before = limits(run_of(tmp_path / "before", made(100, 1)))
    assert before["cause"] == "update"
    assert "batch_size" in before["next"]
    small, large = shares(run_of(tmp_path / "both", in_turn(made(40, 1), made(40, 512))), "rank_update_ms")
    assert large < 0.8 * small


def collecting(number: int) -> Iterator[torch.Tensor]:
    for batch in made(number, 16):
        gc.collect()
        yield batch


def test_frozen_objects_take_no_time_in_garbage_collections(tmp_path: Path) -> None:
    kept = [[place] for place in range(300_000)]
    before = limits(run_of(tmp_path / "before", collecting(20)))
    assert before["cause"] == "gc"
    assert "gc.freeze()" in before["next"]
    gc.freeze()
    try:
        taken = limits(run_of(tmp_path / "taken", collecting(20)))
    finally:
        gc.unfreeze()
    assert taken["shares"]["gc"] * taken["total_sec"] < 0.5 * before["shares"]["gc"] * before["total_sec"]
    assert len(kept) == 300_000
