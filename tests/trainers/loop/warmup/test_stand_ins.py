"""Helper processes compile on a stand-in while the run's data are made, and the run loads what suits its own data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.plugins.precision import MixedPrecision

from conf.schema import RunConfig
from tests.support.composing import ROOT, composed
from tests.support.folders import wait_for
from tests.workloads import standing_in
from tracking.record import run_folder
from tracking.request import checks
from trainers.data.shapes import generated_files
from trainers.loop.build import build
from trainers.loop.warmup import evaluating, keep_traces, kept_traces, parallel
from trainers.loop.worker import compile_part
from trainers.workload import Shard, load_workload

CPU = torch.device("cpu")
SIZE, STAND_IN_SIZE = 14, 10
TRAIN, EVALUATE = 0, parallel.EVALUATION


def on_a_cpu(*words: str) -> RunConfig:
    return checks.check_run(composed([*words, "gpus=0", "compile=true", "precision=bf16"]), [])


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache", "one_thread")
@pytest.mark.parametrize(
    ("model", "kind", "num_parts"),
    [("maskrcnn", "detection", 4), ("ssd", "detection", 2), ("resnet50", "classification", 2)],
)
def test_calls_on_a_stand_in_have_the_names_of_those_on_the_data(
    monkeypatch: pytest.MonkeyPatch, model: str, kind: generated_files.Kind, num_parts: int
) -> None:
    config = on_a_cpu(f"model={model}", f"recipe={model}_cpu", f"dataset.size={SIZE}")
    workload = load_workload(config)
    standing_in_for = replace(workload, data=workload.stand_ins)
    monkeypatch.setattr(generated_files, "STAND_IN_SIZE", STAND_IN_SIZE)
    names: list[tuple[str, str]] = []

    def noted(self: Any, *args: Any) -> Any:
        names.append((self._name_of, self._name(args)))
        return self._function(*args)

    def names_of(parts: dict[int, parallel.Part]) -> dict[int, list[tuple[str, str]]]:
        by_part = {}
        for number, part in parts.items():
            names.clear()
            part()
            by_part[number] = [*names]
        return by_part

    monkeypatch.setattr(kept_traces.KeptTraces, "__call__", noted)
    with monkeypatch.context() as missing:
        missing.setattr(generated_files, "is_cached", lambda name, path: False)
        assert generated_files.soonest(kind, SIZE, None) == (STAND_IN_SIZE, None)
        early = names_of(compile_part.build_parts(config, standing_in_for))
    own = names_of(compile_part.build_parts(config, workload))
    assert early == own
    assert len(own) == num_parts
    assert all(own.values())
    assert generated_files.soonest(kind, SIZE, None) == (SIZE, None), "data that are there need no stand-in"


def test_small_data_and_data_of_the_user_are_found_where_they_are(tmp_path: Path) -> None:
    small = generated_files.STAND_IN_SIZE
    assert generated_files.soonest("detection", small, str(tmp_path)) == (small, str(tmp_path))
    assert generated_files.soonest("detection", 4000, str(tmp_path)) == (small, None), "nothing is added to a path"
    (tmp_path / f"shapes-v{generated_files.VERSION}-detection-4000").mkdir()
    assert generated_files.soonest("detection", 4000, str(tmp_path)) == (4000, str(tmp_path))


class Run:
    """NCF on a CPU, of which a helper process has compiled all parts on the stand-in of `workload`."""

    def __init__(self, folder: Path, workload: str) -> None:
        config = on_a_cpu(
            "model=ncf", "recipe=ncf_cpu", "dataset=synthetic", "dataset.size=10500000", "batch_size=5250"
        )
        own = load_workload(config)
        config.model.workload = f"{standing_in.__name__}:{workload}"
        folder.mkdir()
        run_folder.write_config(folder, config)
        helpers = parallel.Helpers(folder, 1, at_once=True)
        [process] = helpers._processes
        wait_for(lambda: process.poll() is not None, 240)
        self.module, data = build(own, config, Shard(0, 1, CPU), None)
        keep_traces(config)
        self.module.compile_hot_path()
        [self.batch] = data.example_batches(config.device_batch_size(), CPU)
        self.plugin = MixedPrecision("bf16-mixed", "cpu")
        helpers.compile({TRAIN: unexpected, EVALUATE: unexpected})
        helpers.end()

    def train(self) -> None:
        with self.plugin.train_step_context():
            self.module.training_step(self.batch, 0)

    def evaluate(self) -> None:
        with evaluating(self.module), torch.no_grad(), self.plugin.val_step_context():
            self.module.validation_step(self.batch, 0)


def unexpected() -> None:
    raise AssertionError("the helper process has this part")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
@pytest.mark.parametrize(("workload", "loaded", "compiled"), [("ALIKE", 2, 0), ("OTHER", 0, 1)])
def test_the_run_loads_what_suits_its_data_and_compiles_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str, loaded: int, compiled: int
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    before = len(kept_traces.LOADS_SEC), len(kept_traces.SAVES_SEC)
    run = Run(tmp_path / "run", workload)
    run.evaluate()
    if workload == "ALIKE":  # Training would compile as evaluation does.
        run.train()
    assert len(kept_traces.LOADS_SEC) - before[0] == loaded
    assert len(kept_traces.SAVES_SEC) - before[1] == compiled


@pytest.mark.parametrize("stands_in", [True, False])
def test_a_helper_skips_parts_that_its_stand_in_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stands_in: bool
) -> None:
    """With a stand-in it builds before it takes a part, so the run can take parts meanwhile."""
    done: list[Any] = []
    order: list[str] = []
    helpers = parallel.Helpers(tmp_path, 0, at_once=True)
    taken_numbers: Callable[..., Any] = parallel.taken_numbers

    def build_parts(config: Any, workload: Any) -> dict[int, parallel.Part]:
        order.append("build")
        assert [*workload.data.values()] == (["stand-in"] if stands_in else ["data"])
        return {number: partial(done.append, number) for number in (TRAIN, EVALUATE)}

    def noted(waiting: int, taken: int) -> Any:
        order.append("take")
        return taken_numbers(waiting, taken)

    workload: Any = standing_in.ALIKE
    workload = replace(workload, data={"own": "data"}, stand_ins={"own": "stand-in"} if stands_in else {})
    config = SimpleNamespace(dataset=SimpleNamespace(name="own"), on_gpu=lambda: False)
    monkeypatch.setattr(run_folder, "read_config", lambda folder: config)
    monkeypatch.setattr("trainers.workload.load_workload", lambda config: workload)
    monkeypatch.setattr(compile_part, "build_parts", build_parts)
    with monkeypatch.context() as during:
        during.setattr(parallel, "taken_numbers", noted)
        compile_part.compile_beside(tmp_path, helpers._waiting, helpers._taken)
    assert done == [TRAIN, EVALUATE]
    assert order == (["build", "take"] if stands_in else ["take", "build"])
    helpers.end()


def test_the_run_takes_what_is_left_and_skips_numbers_without_a_part(tmp_path: Path) -> None:
    helpers = parallel.Helpers(tmp_path, 0, at_once=True)
    assert next(parallel.taken_numbers(helpers._waiting, helpers._taken)) == TRAIN
    done: list[int] = []
    helpers.compile({TRAIN: unexpected, 1: partial(done.append, 1), EVALUATE: partial(done.append, EVALUATE)})
    helpers.end()
    assert done == [1, EVALUATE]
