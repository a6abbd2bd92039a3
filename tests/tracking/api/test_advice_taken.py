"""An advice is tested by being taken: a run that is slow on purpose gets faster by it.

What to change is read from the words of the advice. Where both fit into one run, ten steps of each take turns, so other
processes on the machine slow both. Nothing is sampled, so these cannot be named as the limit.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from tests.trainers import processes
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
        time.sleep(0.005)
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


def made(number: int, batch_size: int) -> Iterator[torch.Tensor]:
    return (torch.ones(batch_size, 64) for _ in range(number))


def named(pattern: str, advice: str) -> str:
    """The option that an advice names."""
    match = re.search(pattern, advice)
    assert match, advice
    return match[1]


def in_turn(first: Iterable[torch.Tensor], second: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Batches of both: a window of the first, a window of the second, and so on."""
    for side in cycle([iter(first), iter(second)]):
        begins = next(side, None)
        if begins is None:
            return
        yield begins
        yield from islice(side, WINDOW - 1)  # each only when its step asks for it


def rates(run: Path, num_sides: int) -> list[float]:
    """Samples a second of the windows of each side, whose windows take turns; without each side's first window."""
    windows = [
        record.values for record, _ in journal.read(run / run_folder.JOURNAL) if record.key == "throughput_window"
    ]
    windows = [values for values in windows if values["step"] > num_sides * WINDOW]
    sides = [
        [values for values in windows if (values["step"] - 1) // WINDOW % num_sides == side]
        for side in range(num_sides)
    ]
    return [1e3 * sum(row["samples"] for row in side) / sum(row["rank_ms"][0] for row in side) for side in sides]


def speed_up(run: Path) -> float:
    """The rate of the second side over that of the first."""
    first, second = rates(run, 2)
    return second / first


def test_more_processes_that_load_shorten_the_wait_for_data(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = limits(run_of(tmp_path / "before", DataLoader(Slow(160), batch_size=16)))
    assert before["cause"] == "data"
    printed = capfd.readouterr().out
    for heading in ("limited by: waiting for data", "why: steps waited", f"try first: {before['next']}"):
        assert f"timetrial: {heading}" in printed
    option = named(r"more loading processes: DataLoader\((\w+)=", before["next"])
    loaders = (DataLoader(Slow(480), batch_size=16, **{option: number}) for number in (0, 2))
    assert speed_up(run_of(tmp_path / "both", in_turn(*loaders))) > 1.3


def test_fewer_evaluations_leave_more_time_to_train(tmp_path: Path) -> None:
    before = limits(run_of(tmp_path / "before", made(40, 16), evaluate_every=4))
    assert before["cause"] == "evaluation"
    assert "fewer evaluations" in before["next"]
    taken = limits(run_of(tmp_path / "taken", made(40, 16), evaluate_every=40))
    assert taken["total_sec"] < 0.7 * before["total_sec"]


def test_a_larger_batch_updates_the_weights_less_often(tmp_path: Path) -> None:
    before = limits(run_of(tmp_path / "before", made(100, 1)))
    assert before["cause"] == "update"
    option = named(r"a larger (\w+)", before["next"])
    small, large = (made(60, **{option: size}) for size in (1, 64))
    assert speed_up(run_of(tmp_path / "both", in_turn(small, large))) > 5.0


def collecting(number: int) -> Iterator[torch.Tensor]:
    for batch in made(number, 16):
        gc.collect()
        yield batch


def test_frozen_objects_take_no_time_in_garbage_collections(tmp_path: Path) -> None:
    kept = [[place] for place in range(300_000)]
    before = limits(run_of(tmp_path / "before", collecting(20)))
    assert before["cause"] == "gc"
    getattr(gc, named(r"^gc\.(\w+)\(\) before the training", before["next"]))()
    try:
        taken = limits(run_of(tmp_path / "taken", collecting(20)))
    finally:
        gc.unfreeze()
    assert taken["total_sec"] < 0.7 * before["total_sec"]
    assert len(kept) == 300_000


BATCHES = {"tiny": {"batch_size": 20}, "large": {"batch_size": 200}}
LOADERS = {"late": {"num_workers": 0}, "helped": {"num_workers": 2}}


def train_in_two(rank: int, folder: str) -> None:
    """Trainings of two processes, which differ in their batch size, or in the loader of rank 1."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for name, options in BATCHES.items():
        train_together(folder, name, made(4000 // options["batch_size"], **options))
    for name, options in LOADERS.items():
        own = {**options, "multiprocessing_context": "fork"} if rank and options["num_workers"] else {}
        train_together(folder, name, DataLoader(Slow(900) if rank else torch.ones(900, 64), batch_size=20, **own))
    dist.destroy_process_group()


def train_together(folder: str, name: str, batches: Iterable[torch.Tensor]) -> None:
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 4096))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with time_trial(
        {"loss": "<=-1"}, name=name, runs_dir=folder, offline=True, device="cpu", log_every_n_steps=5,
        system_metrics_interval_sec=0,
    ) as trial:  # fmt: skip
        for rows in batches:
            optimizer.zero_grad()
            loss = net(rows).square().mean()
            loss.backward()
            optimizer.step()
            trial.step(len(rows), loss)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What limited each training of `train_in_two`, by its name."""
    folder = tmp_path_factory.mktemp("together")
    processes.ranks(train_in_two, str(folder))
    runs = {name: next(folder.glob(f"2*-{name}-*")) for name in (*BATCHES, *LOADERS)}
    return {name: limits(run) | {"samples_per_sec": rates(run, 1)[0]} for name, run in runs.items()}


def test_a_larger_batch_exchanges_gradients_less_often(together: dict[str, dict[str, Any]]) -> None:
    tiny, large = together["tiny"], together["large"]
    assert tiny["cause"] == "exchange"
    assert named(r"a larger (\w+)", tiny["next"]) == "batch_size"
    assert large["samples_per_sec"] > 2 * tiny["samples_per_sec"]


def test_more_processes_that_load_for_the_slow_rank_shorten_the_wait_of_all(
    together: dict[str, dict[str, Any]],
) -> None:
    late, helped = together["late"], together["helped"]
    assert (late["cause"], late["slow_rank"]["rank"], late["slow_rank"]["cause"]) == ("data", 1, "data")
    assert named(r"DataLoader\((\w+)=", late["next"]) == "num_workers"
    assert helped["samples_per_sec"] > 1.3 * late["samples_per_sec"]
