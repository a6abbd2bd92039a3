"""A translator from the command line to BLEU and tokens a second, over two processes, on files as WMT's."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from tests.launch.test_resume import epochs_under_way, kill_everything, only_folder
from tests.support.commands import HANGS_SEC, Launched, begin, events, launch
from tests.trainers.data.text.files import TRAIN, TRAIN_NAME, write
from tracking.analysis import mlperf
from tracking.record import journal, run_folder

pytestmark = pytest.mark.slow

NUM_TIMES = 40
OPTIONS = (
    "model=transformer", "recipe=transformer_cpu", "dataset=wmt", "gpus=0", "cpu_processes=2", "max_epochs=2",
    "batch_size=64", "model.hparams.pack_length=64", "model.hparams.width=16", "model.hparams.hidden=16",
    "log_every_n_steps=2", "tracking.offline=true", "tracking.system_metrics_interval_sec=0",
)  # fmt: skip


def files(folder: Path) -> Path:
    lines = {f"{TRAIN_NAME}.{side}".replace(".", "_"): "\n".join(text * NUM_TIMES) for side, text in TRAIN.items()}
    return write(folder, **lines)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    cwd = tmp_path_factory.mktemp("translation")
    return launch(cwd, *OPTIONS, f"dataset.path={files(cwd / 'wmt')}", TIMETRIAL_CACHE=str(cwd / "cache"))


def test_it_trains_and_evaluates_on_two_processes(run: Launched) -> None:
    assert run.code == 0, run.output
    assert run.result["unit"] == "sentences"
    assert [evaluation["metrics"].keys() for evaluation in run.result["evaluations"]] == [{"bleu"}] * 2
    assert [epoch.values["samples"] for epoch in events(run.folder, "epoch_stop")] == [2 * NUM_TIMES] * 2
    assert '"submission_benchmark", "value": "transformer"' in (run.folder / mlperf.LOG).read_text()


def test_tokens_are_counted_by_language_without_padding(run: Launched) -> None:
    windows = [event.values for event in events(run.folder, "throughput_window")]
    of_an_epoch = [
        sum(window[key] for window in windows if window["epoch_num"] == 1) for key in ("source_tokens", "target_tokens")
    ]
    expected = [NUM_TIMES * sum(len(line.split()) + 1 for line in TRAIN[side]) for side in ("en", "de")]
    assert of_an_epoch == expected
    metrics = run.result["metrics"]
    both = metrics["throughput/source_tokens_per_sec"] + metrics["throughput/target_tokens_per_sec"]
    assert metrics["throughput/tokens_per_sec"] == pytest.approx(both)


def test_a_line_that_cannot_be_used_is_named_before_anything_trains(run: Launched, tmp_path: Path) -> None:
    folder = files(tmp_path / "wmt")
    with (folder / f"{TRAIN_NAME}.de").open("a") as file:
        file.write("\n\n")
    again = launch(tmp_path, *OPTIONS, f"dataset.path={folder}", TIMETRIAL_CACHE=str(tmp_path / "cache"))
    assert again.code == 2
    assert f"{TRAIN_NAME}.de, line {2 * NUM_TIMES + 1}: is empty" in again.result["failure"]["message"]


@pytest.mark.parametrize(("num_steps", "num_timed"), [pytest.param(4, 0, marks=pytest.mark.exhaustive), (12, 1)])
def test_of_the_exchange_every_tenth_is_timed_and_none_of_the_warm_up(
    tmp_path: Path, num_steps: int, num_timed: int
) -> None:
    """Four shapes warm up in twelve exchanges, in which processes wait for each other's compilers."""
    run = launch(
        tmp_path, "model=gnmt", "recipe=gnmt_cpu", "dataset=synthetic", "dataset.size=2000", "gpus=0",
        "cpu_processes=2", "overlap_grad_reduce=false", "max_epochs=1", f"limit_train_batches={num_steps}",
        "model.hparams.num_shapes=4", "model.hparams.width=8", "batch_size=128", "tracking.offline=true",
        "tracking.system_metrics_interval_sec=0",
    )  # fmt: skip
    assert run.code == 0, run.output
    assert len(events(run.folder, "gradient_exchange")) == num_timed


GNMT = (
    "model=gnmt", "dataset=numbers", "dataset.size=2000", "batch_size=1024", "max_epochs=6", "target=100",
    "checkpoint_every_epochs=1", "tracking.offline=true", "tracking.system_metrics_interval_sec=0",
)  # fmt: skip
ON_A_CPU = ("gpus=0", "recipe=gnmt_cpu", "model.hparams.width=16", "model.hparams.num_shapes=4")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.mark.parametrize(
    ("options", "rel"),
    [
        pytest.param((*GNMT, *ON_A_CPU), 0, id="cpu", marks=pytest.mark.exhaustive),
        pytest.param((*GNMT, "gpus=1", "precision=bf16"), 0.05, id="gpu", marks=[pytest.mark.gpu, NO_GPU]),
    ],
)
def test_a_translator_that_is_killed_goes_on_to_the_same_losses(
    tmp_path: Path, options: tuple[str, ...], rel: float
) -> None:
    """On a CPU to the last bit. A GPU adds up in another order each time, and replays the steps of each shape."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    uninterrupted = launch(whole, *options)
    killed = begin(cut, *options)
    deadline = time.monotonic() + HANGS_SEC
    while not epochs_under_way(cut) & {3, 4}:
        assert time.monotonic() < deadline
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.02)
    kill_everything(killed)
    resumed = launch(cut, f"resume={only_folder(cut)}")
    assert resumed.code == 0, resumed.output
    assert resumed.result["metrics"]["resume/count"] == 1
    assert [losses(run)[-1] for run in (resumed, uninterrupted)] == pytest.approx([losses(uninterrupted)[-1]] * 2, rel)


def losses(run: Launched) -> list[float]:
    """Of training, a value a window."""
    rows = [record.values for record, _ in journal.read(run.folder / run_folder.JOURNAL) if record.kind == "metrics"]
    return [row["train/loss"] for row in rows if "train/loss" in row]
