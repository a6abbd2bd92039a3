"""The thread that writes checkpoints: a rank that fails to copy or to write ends no training and blocks no other."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from tests.trainers import processes
from tests.trainers.processes import ALONE, CPU
from trainers.loop.saving import background, checkpoint, copies
from trainers.loop.saving.background import Job, Writer
from trainers.loop.saving.checkpoint import CheckpointCallback
from trainers.loop.saving.copies import copied, has_room, on_host
from trainers.loop.saving.interval import Interval
from trainers.workload import Shard

GIB = 2**30
GPU = torch.device("cuda", 0)


def job(path: Path, step: int = 1) -> Job:
    return Job(path, step, {"state_dict": {"weights": torch.ones(3)}, "callbacks": {}}, {"random": {}})


@pytest.mark.parametrize(("gib", "graphs", "fits"), [(5, False, True), (7, False, False), (5, True, False)])
def test_the_memory_of_a_steps_activations_is_no_room(
    monkeypatch: pytest.MonkeyPatch, gib: int, graphs: bool, fits: bool
) -> None:
    """5 GiB are free and 1 GiB of the pool was never used: 20 GiB of it are only free between steps.

    Beside CUDA graphs all of the pool is in use.
    """
    segments = [{"segment_pool_id": (0, 0)}, {"segment_pool_id": (0, int(graphs))}]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    monkeypatch.setattr(copies, "available_bytes", lambda: 1000 * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 31 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 10 * GIB)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 30 * GIB)
    assert has_room(gib * GIB, GPU) is fits


def test_a_copy_keeps_the_kind_of_a_mapping() -> None:
    lists: Any = defaultdict(list, a=[torch.ones(2)])
    for change in (copied, on_host):
        same = change(lists)
        assert same["a"] is not lists["a"]
        assert same["new"] == []
        assert change(Counter("aab")) == Counter(a=2, b=1)
        assert list(change(OrderedDict(b=1, a=2))) == ["b", "a"]
        assert "new" not in lists
    assert copied(lists)["a"][0] is not lists["a"][0]


class Uncopied:
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("no copy of this")

    def __reduce__(self) -> Any:
        return Uncopied, ()


def test_what_cannot_be_copied_is_written_at_once(tmp_path: Path) -> None:
    writer = Writer(ALONE, "place")
    odd = job(tmp_path / "c" / "x.ckpt")
    odd.content["odd"] = Uncopied()
    assert writer.write(odd, in_background=True) is False
    (written,) = writer.written()
    assert written.error == ""
    assert "odd" in torch.load(tmp_path / "c" / "x.ckpt", weights_only=False)


def two_ranks(rank: int, folder: str) -> None:
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    writer = Writer(Shard(rank, 2, CPU), "place")
    paths = [Path(folder) / "c" / f"{name}.ckpt" for name in ("failed", "whole", "waited")]
    with mock.patch.object(torch.cuda, "set_device", side_effect=RuntimeError("device-side assert")), \
         mock.patch.object(torch.cuda, "current_stream"):  # fmt: skip
        writer._stream = mock.Mock() if rank else None
        writer.write(job(paths[0]), in_background=True)
        assert writer._thread is not None
        writer._thread.join(30)
        assert not writer._thread.is_alive(), f"rank {rank} waits for the other"
    (failed,) = writer.written()
    assert failed.error == "rank 1: RuntimeError: device-side assert"
    writer._stream = None
    writer.write(job(paths[1]), in_background=True)
    writer.wait()
    full = mock.patch.object(background, "copied", side_effect=torch.OutOfMemoryError if rank else None)
    with full:
        assert writer.write(job(paths[2]), in_background=True) is False
    assert [written.error for written in writer.written()] == ["", ""]
    dist.barrier()
    assert [path.exists() for path in paths] == [False, True, True]
    dist.destroy_process_group()


@pytest.mark.slow
def test_what_one_rank_cannot_do_holds_no_other_up(tmp_path: Path) -> None:
    processes.ranks(two_ranks, str(tmp_path))


class Recorder:
    """Notes in which order the callback asks for things; stands for journal and writer."""

    def __init__(self, busy: bool) -> None:
        self.order: list[str] = []
        self._busy = busy

    def event(self, key: str, **values: Any) -> None:
        self.order.append(key)

    def busy(self) -> bool:
        return self._busy

    def wait(self) -> None:
        self.order.append("wait")

    def written(self) -> list[Job]:
        return []

    def write(self, job: Job, in_background: bool) -> bool:
        self.order.append("write")
        return in_background


@pytest.mark.parametrize(
    ("in_background", "busy", "scaler", "waits"),
    [(True, False, None, False), (False, False, None, True), (True, True, None, True), (True, False, object(), True)],
)
def test_steps_on_the_gpu_end_before_the_training_is_held_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_background: bool, busy: bool, scaler: object, waits: bool
) -> None:
    recorder: Any = Recorder(busy)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: recorder.order.append("synchronize"))
    monkeypatch.setattr(checkpoint, "random_states", lambda device: {})
    monkeypatch.setattr(checkpoint, "epochs_trained", lambda trainer: 0.5)
    callback = CheckpointCallback(tmp_path, Interval(steps=2), Shard(0, 1, GPU), recorder, mock.Mock())
    callback._writer, callback._in_background = recorder, in_background
    trainer: Any = SimpleNamespace(
        precision_plugin=SimpleNamespace(scaler=scaler), current_epoch=0, callbacks=[],
        _checkpoint_connector=SimpleNamespace(dump_checkpoint=lambda weights_only: {}),
    )  # fmt: skip
    callback._save(trainer, mock.Mock(), 2)
    first = ["synchronize"] if waits else []
    assert recorder.order == [*first, "checkpoint_start", "wait", "write", "checkpoint_stop"]


def test_python_switches_often_between_threads_while_one_writes(tmp_path: Path) -> None:
    usual, intervals = sys.getswitchinterval(), []
    writer = Writer(ALONE, "place")
    for in_background in (True, False):
        content = {"state_dict": {"weights": torch.ones(3)}, "callbacks": {}}
        late = {"interval": lambda: intervals.append(sys.getswitchinterval())}
        writer.write(Job(tmp_path / "checkpoints" / "x.ckpt", 1, content, {"random": {}}, late), in_background)
        writer.wait()
    assert intervals == [pytest.approx(background.SWITCH_SEC), usual]
    assert sys.getswitchinterval() == usual
