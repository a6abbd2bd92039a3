"""Parts of a step are compiled by several processes, each part once, and the run loads what the others kept."""

from __future__ import annotations

import os
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
take_parts = parallel.take_parts


def unexpected() -> None:
    raise AssertionError("the helper takes this part")


def test_each_part_is_taken_once() -> None:
    done: list[int] = []
    both = [partial(done.append, number) for number in range(2)]
    with parallel.numbers_of(both) as waiting, parallel.pipe() as (started, taken):
        parallel.take_parts(waiting, taken, both)
        parallel.take_parts(waiting, taken, both)
        assert os.read(started, 100).split() == [str(os.getpid()).encode()] * 2
    assert done == [0, 1]


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
    monkeypatch.setattr(parallel, "num_cores", lambda: cores)
    module: Any = SimpleNamespace(device=torch.device(device))
    for place in range(kept):
        setattr(module, f"function{place}", object.__new__(kept_traces.KeptTraces))
    assert parallel.number_of_helpers(module, num_parts) == number


@pytest.mark.slow
@pytest.mark.parametrize("command", ["/bin/true", "/bin/false", "/nowhere/python"])
def test_what_fails_beside_a_run_is_left_to_the_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(parallel.sys, "executable", command)

    def full() -> None:
        raise torch.OutOfMemoryError

    done: list[int] = []
    open_before = len([*Path("/proc/self/fd").iterdir()])
    parallel.compile_parts(tmp_path, [partial(done.append, 1), full, partial(done.append, 2)], 1, 2)
    assert done == [1]
    assert len([*Path("/proc/self/fd").iterdir()]) == open_before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
def test_the_run_loads_what_a_helper_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    config = checks.check_run(composed(["model=ncf", "recipe=ncf_cpu", "gpus=0", "compile=true", "precision=bf16"]), [])
    (tmp_path / "run").mkdir()
    run_folder.write_config(tmp_path / "run", config)
    module, data = build(load_workload(config), config, Shard(0, 1, CPU), None)
    keep_traces(config)
    module.compile_hot_path()
    [batch] = data.example_batches(config.device_batch_size(), CPU)
    plugin = MixedPrecision("bf16-mixed", "cpu")
    traces = tmp_path / "inductor" / TRACES

    def evaluate() -> None:
        """The run's own part, which lasts until the helper has compiled its: training, forwards and backwards."""
        wait_for(lambda: any(traces.glob("*.trace")), 120)
        with evaluating(module), torch.no_grad(), plugin.val_step_context():
            module.validation_step(batch, 0)

    counters, before = torch._dynamo.utils.counters["inductor"], counts()
    # The helper's first part is training, which the numbers below leave to it.
    monkeypatch.setattr(parallel, "take_parts", lambda waiting, taken, parts: later(waiting, taken, parts, traces))
    parallel.compile_parts(tmp_path / "run", [unexpected, evaluate], 1, 1)
    assert counts() == (before[0], before[1] + 1), "evaluation was compiled here, and run without its compiled code"
    assert parallel.WAITS_SEC
    misses = counters["fxgraph_cache_miss"]
    with plugin.train_step_context():
        loss = module.training_step(batch, 0)
    loss.backward()
    assert counts() == (before[0] + 1, before[1] + 1), "training was loaded"
    assert counters["fxgraph_cache_miss"] == misses, "with its backward pass"


def counts() -> tuple[int, int]:
    """How many functions were loaded and kept so far."""
    return len(kept_traces.LOADS_SEC), len(kept_traces.SAVES_SEC)


def later(waiting: int, taken: int, parts: list[Any], traces: Path) -> None:
    """Take parts when the helper has taken its first."""
    wait_for(lambda: traces.exists() and any(traces.iterdir()), 120)
    take_parts(waiting, taken, parts)
