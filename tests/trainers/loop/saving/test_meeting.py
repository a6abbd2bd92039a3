"""A rank that fails while a sharded checkpoint is gathered does not wait for ranks that wait for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from tests.trainers import processes
from tests.trainers.processes import CPU
from trainers.loop.saving import CheckpointCallback, Interval, meeting
from trainers.loop.saving.background import Stopwatch
from trainers.workload import Shard


def gathering(rank: int, folder: str, last: int) -> None:
    """All ranks gather, then all fail, then the `last` one alone; a gather sums a tensor over all ranks."""
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=rank, world_size=2)
    callback = CheckpointCallback(Path(folder), Interval(steps=2), Shard(rank, 2, CPU), None, mock.Mock())
    module: Any = torch.nn.Linear(1, 1)
    failing: set[int] = set()

    def dump_checkpoint(weights_only: bool) -> dict[str, Any]:
        if rank in failing:
            raise torch.OutOfMemoryError("CUDA out of memory")
        dist.all_reduce(torch.ones(1))
        return {}

    connector = SimpleNamespace(dump_checkpoint=dump_checkpoint)
    trainer: Any = SimpleNamespace(current_epoch=0, callbacks=[], _checkpoint_connector=connector)
    sharded = mock.patch.object(meeting.sharded, "is_sharded", return_value=True)
    ends = []
    with mock.patch.object(meeting, "LIMIT_SEC", 5.0), sharded:
        callback.on_fit_start(trainer, module)
        for ranks in (set(), {0, 1}, {last}):
            failing = ranks
            try:
                ends.append(callback._job(trainer, module, 2, Stopwatch()).error)
            except meeting.GatherFailed as failed:
                ends.append(str(failed))
    (Path(folder) / f"{rank}").write_text("\n".join(ends))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("last", [1, 0])
def test_it_ends_with_an_error_that_names_it_and_what_all_ranks_do_alike_goes_on(tmp_path: Path, last: int) -> None:
    processes.ranks(gathering, str(tmp_path), last)
    full = "OutOfMemoryError: CUDA out of memory"
    named = (
        f"checkpoint of a sharded training: rank {last} could not gather it ({full}), and other ranks did not follow"
    )
    assert (tmp_path / f"{last}").read_text().splitlines() == ["", full, f"{named} within 5 s"]
    gathered, failed, ended = (tmp_path / f"{1 - last}").read_text().splitlines()
    assert (gathered, failed) == ("", full)
    assert ended, "the other process has ended, so this one no longer waits"
