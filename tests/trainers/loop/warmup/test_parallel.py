"""Parts of a step are compiled by several processes, each part once, and the run loads what the others kept."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.plugins.precision import MixedPrecision

from tests.support.composing import ROOT, composed
from tests.support.folders import wait_for
from tracking.record import run_folder
from tracking.request import checks
from trainers.loop.train import build
from trainers.loop.warmup import evaluating, keep_traces, kept_traces, parallel
from trainers.loop.warmup.compile_first import TRACES
from trainers.workload import Shard, load_workload

CPU = torch.device("cpu")


def unexpected() -> None:
    raise AssertionError("the helper has taken this part")


def test_each_part_is_taken_once(tmp_path: Path) -> None:
    done: list[int] = []
    both = [partial(done.append, number) for number in range(2)]
    (tmp_path / "0").symlink_to("1")
    parallel.take_parts(tmp_path, both)
    parallel.take_parts(tmp_path, both)
    assert done == [1]
    assert (tmp_path / "1").readlink() == Path(str(os.getpid()))


def test_training_on_every_shape_comes_first() -> None:
    done: list[str] = []
    batches: list[Any] = ["wide", "high"]
    for part in parallel.parts(batches, lambda batch: done.append(f"train {batch}"), done.append):
        part()
    assert done == ["train wide", "train high", "wide", "high"]
    assert len(parallel.parts(batches, done.append, None)) == 2


@pytest.mark.parametrize(
    ("device", "kept", "num_parts", "cores", "number"),
    [("cuda", 2, 6, 64, 5), ("cuda", 2, 6, 16, 3), ("cuda", 2, 2, 64, 1), ("cuda", 2, 1, 64, 0),
     ("cuda", 2, 6, 4, 0), ("cuda", 1, 6, 64, 0), ("cpu", 2, 6, 64, 0)],
)  # fmt: skip
def test_helpers_are_for_gpus_and_kept_traces_as_the_cores_allow(
    monkeypatch: pytest.MonkeyPatch, device: str, kept: int, num_parts: int, cores: int, number: int
) -> None:
    monkeypatch.setattr(parallel.processes, "threads_each", lambda processes: cores)
    module: Any = SimpleNamespace(device=torch.device(device))
    for place in range(kept):
        setattr(module, f"function{place}", object.__new__(kept_traces.KeptTraces))
    assert parallel.number_of_helpers(module, [unexpected] * num_parts) == number


@pytest.mark.slow
def test_memory_that_helpers_take_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        parallel.compile_parts(tmp_path, [full], 0)
    monkeypatch.setattr(parallel.sys, "executable", "/bin/true")
    parallel.compile_parts(tmp_path, [full], 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
def test_the_run_loads_what_a_helper_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    config = checks.check_run(composed(["gpus=0", "compile=true", "batch_size=8", "precision=bf16"]), [])
    (tmp_path / "run").mkdir()
    run_folder.write_config(tmp_path / "run", config)

    def has_kept() -> bool:
        return any((tmp_path / "inductor" / TRACES).glob("*.trace"))

    began = time.monotonic()
    parallel.compile_parts(tmp_path / "run", [partial(wait_for, has_kept, 120), unexpected], 1)
    assert parallel.WAITS_SEC[-1] <= time.monotonic() - began
    module, data = build(load_workload(config), config, Shard(0, 1, CPU), None)
    keep_traces(config)
    module.compile_hot_path()
    loaded, saved = len(kept_traces.LOADS_SEC), len(kept_traces.SAVES_SEC)
    with evaluating(module), torch.no_grad(), MixedPrecision("bf16-mixed", "cpu").val_step_context():
        module.validation_step(data.example_batches(8, CPU)[0], 0)
    assert (len(kept_traces.LOADS_SEC), len(kept_traces.SAVES_SEC)) == (loaded + 1, saved)
