"""A sharded model exchanges in all of its layers: the rank for which the others wait there is named, with its cause."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from tests.trainers import processes
from tracking.measure.bottleneck import slow_rank
from tracking.measure.steps import optimizer_steps
from tracking.measure.training import Meter, Ranks
from tracking.record import Journal, journal

SLOW, STEPS, SLEPT_SEC = 1, 8, 0.1
CPU = torch.device("cpu")


def train(rank: int, folder: str) -> None:
    """A training whose slow rank sleeps in each step, with an evaluation in which it sleeps for longer."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    meter = Meter(CPU, Ranks(2), Journal(Path(folder) / "journal.jsonl") if rank == 0 else None, window_steps=2)
    with optimizer_steps(meter.update_begins):
        for _ in range(2):
            meter.open()
            for place in range(1, STEPS + 1):
                meter.batch_ready(8)
                time.sleep(SLEPT_SEC * (rank == SLOW))
                net(torch.ones(4, 8)).sum().backward()
                optimizer.step()
                meter.step_done(None, place)
            meter.close()
            time.sleep(5 * SLEPT_SEC * (rank == SLOW))
            with torch.no_grad():
                net(torch.ones(4, 8))
    meter.end()
    dist.destroy_process_group()


@pytest.mark.slow
def test_the_rank_that_the_others_wait_for_in_the_exchanges_of_a_sharded_model_is_named(tmp_path: Path) -> None:
    processes.ranks(train, str(tmp_path))
    windows = [
        record.values for record, _ in journal.read(tmp_path / "journal.jsonl") if record.key == "throughput_window"
    ]
    waiting, late = slow_rank.ranks(windows)
    slept = 2 * STEPS * SLEPT_SEC
    assert waiting.exchange - late.exchange == pytest.approx(slept, rel=0.3)  # the first step is not marked
    assert waiting.exchange < waiting.total
    slow = slow_rank.verdict([waiting, late], [], {})
    assert (slow["rank"], slow["cause"]) == (SLOW, "blocked")
    assert slow["waited"] > 0.5
