"""The training loop's assumptions about workloads, and what it checks."""

from __future__ import annotations

import gc
import socket
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import SingleDeviceStrategy

from conf.dataset_options import DatasetConfig
from conf.schema import ConfigError, RunConfig
from tracking.measure.training import EvaluationPlan, MeasuringCallback
from tracking.record import Journal, journal, run_folder
from trainers.data.digits import digits
from trainers.data.language import grammar
from trainers.loop.batch_size import checked_train_samples
from trainers.loop.off_the_clock import record
from trainers.loop.process_group import join
from trainers.loop.saving import data_version, keep_to_version
from trainers.loop.train import make_trainer, prepare
from trainers.workload import Shard


@pytest.mark.parametrize("asked", [1, 2])
def test_the_world_is_counted_and_must_be_as_large_as_asked(monkeypatch: pytest.MonkeyPatch, asked: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    try:
        if asked == 1:
            assert join(RunConfig(gpus=0)).world_size == 1
        else:
            with pytest.raises(AssertionError, match="1 processes take part; the config has 2"):
                join(RunConfig(gpus=0, cpu_processes=asked))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("processes", "most"), [(1, 1150), (2, 575)])
def test_a_global_batch_is_at_most_the_training_set(processes: int, most: int) -> None:
    def check(batch_size: int) -> None:
        config = RunConfig(gpus=0, cpu_processes=processes, batch_size=batch_size, dataset=DatasetConfig("digits"))
        checked_train_samples(digits(), config, Shard(0, processes, torch.device("cpu")))

    check(most)
    with pytest.raises(ConfigError, match=f"has 1,150 samples. Next: give up to batch_size={most}$"):
        check(most + 1)


def test_data_tell_their_version_where_they_can() -> None:
    class Versioned:
        def version(self) -> str:
            return "c0ffee"

    assert data_version(Versioned()) == {"data.version": "c0ffee"}  # type: ignore[arg-type]
    assert data_version(object()) == {}  # type: ignore[arg-type]


def test_a_run_that_saves_checkpoints_keeps_to_its_data(tmp_path: Path) -> None:
    log = Journal(tmp_path / run_folder.JOURNAL)
    data: Any = Changing()
    keep_to_version(data, tmp_path, log)
    keep_to_version(data, tmp_path, log)
    data.content = "other"
    with pytest.raises(ConfigError, match=r"data\.version was first, is other\)\. Next: put the former data back"):
        keep_to_version(data, tmp_path, log)
    keep_to_version(object(), tmp_path, log)  # type: ignore[arg-type]
    log.close()


class Changing:
    content = "first"

    def version(self) -> str:
        return self.content


def test_a_run_keeps_what_its_data_say_of_themselves(tmp_path: Path) -> None:
    log = Journal(tmp_path / run_folder.JOURNAL)
    data = grammar(branches=4)
    record(data, tmp_path, log)
    assert not (tmp_path / "data_files.txt").exists()  # They are made of no files.
    record(replace(data, record="c0ffee  train  a.txt\n"), tmp_path, log)
    assert (tmp_path / "data_files.txt").read_text() == "c0ffee  train  a.txt\n"
    record(digits(), tmp_path, log)
    tags = [row.values for row, _ in journal.read(tmp_path / run_folder.JOURNAL) if row.kind == "tags"]
    assert tags == [{"data.entropy": "1.386294"}] * 2


def test_garbage_collection_leaves_alone_what_was_made_before_the_clock() -> None:
    made: list[list[int]] = []
    nothing: Any = SimpleNamespace(
        module=None, prepare=lambda trainer: made.append([1]), make_room=lambda module, size: None, optimizer_bytes=0,
        log=None, config=None,
    )  # fmt: skip
    gc.collect()
    before = gc.get_freeze_count()
    try:
        prepare(nothing, nothing, nothing)
        assert gc.get_freeze_count() > before
        assert not any(made[0] is item for item in gc.get_objects()), "the collector no longer scans it"
    finally:
        gc.unfreeze()


def test_a_resume_within_an_epoch_does_not_warn_of_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    config, device = RunConfig(gpus=0), torch.device("cpu")
    config.precision.trainer, config.model.optimizer.lr = "32-true", 0.1
    callback = MeasuringCallback(config, device, None, lambda trainer: None, lambda trainer: None)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        trainer = make_trainer(config, SingleDeviceStrategy(device), EvaluationPlan(4, 3, 8.0), callback, True)
        loop = trainer.fit_loop.epoch_loop
        monkeypatch.setattr(trainer.fit_loop, "_combined_loader", SimpleNamespace(flattened=[object()]))
        monkeypatch.setattr(trainer.fit_loop, "max_batches", 4)
        monkeypatch.setattr(type(loop), "global_step", 2)
        loop.restarting = True
        loop.reset()
    assert [str(warning.message) for warning in warned if "resum" in str(warning.message)] == []
