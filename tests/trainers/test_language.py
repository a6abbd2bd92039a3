"""A language model from the command line to its loss and tokens a second, stopped and gone on with, and refused."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import torch

from conf.schema import ConfigError
from tests.launch.test_resume import only_folder
from tests.support.commands import HANGS_SEC, Launched, begin, events, launch
from tests.trainers.models.test_gpt import model
from tests.trainers.processes import ALONE
from tracking.record import checkpoints, journal, run_folder
from trainers.loop.build import make_data
from trainers.loop.load_model import load_model
from trainers.workload import load_workload

pytestmark = pytest.mark.slow

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
OPTIONS = (
    "model=gpt", "recipe=gpt_cpu", "gpus=0", "tracking.offline=true", "tracking.system_metrics_interval_sec=0",
    "model.hparams.steps=24", "dataset.train_tokens=16384", "dataset.validation_tokens=2048", "log_every_n_steps=2",
    "model.batch_size=1024", "model.hparams.micro_batch_size=256", "model.hparams.width=16", "model.eval_every_steps=8",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    return launch(tmp_path_factory.mktemp("language"), *OPTIONS, "cpu_processes=2", "seed=2", **ONE_THREAD)


def losses(run: Launched) -> list[float]:
    rows = [record.values for record, _ in journal.read(run.folder / run_folder.JOURNAL) if record.kind == "metrics"]
    return [row["train/loss"] for row in rows if "train/loss" in row]


def test_its_rate_is_in_tokens_and_its_batch_that_of_all_processes(run: Launched) -> None:
    assert run.code == 0, run.output
    metrics = run.result["metrics"]
    assert run.result["unit"] == "tokens"
    assert metrics["throughput/tokens_per_sec"] == metrics["throughput/samples_per_sec"]
    windows = [event.values for event in events(run.folder, "throughput_window")]
    assert {window["samples"] for window in windows[1:]} <= {1024, 2048}
    assert all(window["tokens"] == window["samples"] for window in windows)
    assert " tokens/s " in run.output
    assert "samples/s" not in run.output


def test_the_schedules_steps_are_trained_over_as_many_epochs_as_they_take(run: Launched) -> None:
    """An epoch has 16 steps. The second one is cut after 8."""
    assert [event.values["samples"] for event in events(run.folder, "epoch_stop")] == [16 * 1024, 8 * 1024]
    assert [evaluation["step"] for evaluation in run.result["evaluations"]] == [8, 16, 24]
    assert run.result["evaluations"][-1]["metrics"]["loss"] < losses(run)[0]


def test_a_sharded_run_has_the_losses_and_leaves_the_model_of_one_that_is_not(run: Launched, tmp_path: Path) -> None:
    options = ("cpu_processes=2", "seed=2", "strategy=fsdp", "save_model=final", "checkpoint_every_steps=10")
    sharded = launch(tmp_path, *OPTIONS, *options, **ONE_THREAD)
    assert sharded.code == 0, sharded.output
    assert losses(sharded) == pytest.approx(losses(run), abs=1e-4)
    ours, others = (each.result["evaluations"][-1] for each in (sharded, run))
    assert ours["metrics"]["loss"] == pytest.approx(others["metrics"]["loss"], abs=1e-4)
    assert [event.values["samples"] for event in events(sharded.folder, "epoch_stop")] == [16 * 1024, 8 * 1024]
    assert sharded.result["metrics"]["world_size"] == 2
    assert not [event for event in events(sharded.folder, "checkpoint_saved") if "error" in event.values]
    config = run_folder.read_config(sharded.folder)
    data = make_data(load_workload(config), config.dataset)
    module = load_model(sharded.folder / run_folder.MODEL, data)
    with torch.no_grad():
        for batch in data.eval_loader(1024, ALONE) or ():
            module.validation_step(batch, 0)
    assert module.metrics()["loss"] == pytest.approx(ours["metrics"]["loss"], abs=1e-4)


@pytest.mark.exhaustive
def test_one_that_is_stopped_goes_on_at_the_very_step(tmp_path: Path) -> None:
    """An epoch has 80 steps, so that the third and last ends after 40."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    options = (*OPTIONS, "model.hparams.steps=200", "dataset.train_tokens=81920", "checkpoint_every_steps=30",
               "model.eval_every_steps=100")  # fmt: skip
    uninterrupted = launch(whole, *options, **ONE_THREAD)
    stopped = begin(cut, *options, **ONE_THREAD)
    deadline = time.monotonic() + HANGS_SEC
    while not list(cut.rglob(f"*{checkpoints.path_of(cut, 1, 30).suffix}")):
        assert time.monotonic() < deadline
        assert stopped.poll() is None, stopped.communicate()[0]
        time.sleep(0.02)
    stopped.send_signal(signal.SIGINT)
    stopped.communicate()
    resumed = launch(cut, f"resume={only_folder(cut)}", **ONE_THREAD)
    assert resumed.code == 0, resumed.output
    assert resumed.result["metrics"]["resume/count"] == 1
    assert losses(resumed)[-1] == losses(uninterrupted)[-1]
    assert [run.result["evaluations"][-1]["step"] for run in (uninterrupted, resumed)] == [200, 200]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["cpu_processes=3"],
            "model.batch_size=1024: not a multiple of 3 devices x sequences of 64. Next: give one, such as 768",
        ),
        (
            ["global_batch_size=640", "model.hparams.micro_batch_size=256"],
            "does not divide a device's batch of 640 tokens",
        ),
        (
            ["global_batch_size=100"],
            "global_batch_size=100: not a multiple of 1 devices x sequences of 64. Next: give one, such",
        ),
        (
            ["batch_size=1024"],
            "batch_size=1024: is the size on one device, but model=gpt has one for all devices",
        ),
        (
            ["model.hparams.vocabulary=20"],
            "is smaller than the 32 tokens of dataset=grammar. Next: give 32 or more, or null",
        ),
        (["+model.targets.grammar.bits_per_byte='<=1'"], "model.targets.grammar.bits_per_byte: "),
        (["dataset.train_tokens=512"], "is in tokens, and larger than the training set"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is(tmp_path: Path, options: list[str], words: str) -> None:
    given = {option.partition("=")[0]: option for option in (*OPTIONS, *options)}
    refused = launch(tmp_path, *given.values(), **ONE_THREAD)
    assert refused.code == 2, refused.output
    assert words in refused.output


def test_weights_of_another_shape_are_refused_by_name() -> None:
    narrow, broad = model(), model(width=64)
    with pytest.raises(ConfigError) as refused:
        broad.on_load_checkpoint({"state_dict": narrow.state_dict()})
    for fact in ("net.embedding has shape [48, 32]", "the model's has [48, 64]. Next: give the model.hparams"):
        assert fact in str(refused.value)
    broad.on_load_checkpoint({"state_dict": broad.state_dict()})
    assert torch.equal(broad.net.embedding, model(width=64).net.embedding)
