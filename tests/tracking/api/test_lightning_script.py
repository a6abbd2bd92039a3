"""Lightning trainings that somebody else wrote, tracked by one callback: figures, endings, and what goes on working."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytorch_lightning as pl

from conf.schema import ConfigError
from tests.support import forked
from tests.support.commands import HANGS_SEC, environment, limited
from tests.tracking.api import own_script
from tests.tracking.api.own_script import BATCH, NUM_TRAIN
from tracking.__main__ import main
from tracking.analysis.audit.audit import audit
from tracking.analysis.report import report
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.api.script_process import THIS_PROCESS
from tracking.lightning import TimeTrial, time_trial
from tracking.measure.training import clock
from tracking.record import documents, journal, run_folder
from tracking.record.journal import Record

EPOCHS, RATE = {"max_epochs": 3}, "throughput/samples_per_sec"
# Lightning's warnings to users are not under test.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def start(
    cwd: Path,
    trial: dict[str, Any],
    trainer: dict[str, Any] | None = None,
    max_file_bytes: int = 0,
    launcher: Sequence[str] = (),
    **asked: Any,
) -> subprocess.Popen[str]:
    """The script as its user starts it. With `max_file_bytes` its files cannot grow beyond."""
    command = [*limited(max_file_bytes), sys.executable, *launcher, own_script.__file__, content(trial, trainer, asked)]
    return subprocess.Popen(
        command, cwd=cwd, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def begin(
    cwd: Path, trial: dict[str, Any], trainer: dict[str, Any] | None = None, max_file_bytes: int = 0, **asked: Any
) -> forked.Forked | subprocess.Popen[str]:
    """The script in a fork of a process that has imported Lightning, as are the ranks that Lightning starts."""
    if not forked.possible():
        return start(cwd, trial, trainer, max_file_bytes, **asked)
    words = [content(trial, trainer, asked)]
    return forked.Forked(words, cwd, environment(), max_file_bytes, script=own_script.__file__)


def content(trial: dict[str, Any], trainer: dict[str, Any] | None, asked: dict[str, Any]) -> str:
    trial = {"runs_dir": "runs", "system_metrics_interval_sec": 0} | trial
    return json.dumps({"trial": trial, "trainer": EPOCHS | (trainer or {})} | asked)


def finished(process: forked.Forked | subprocess.Popen[str], code: int = 0) -> str:
    output, _ = process.communicate(timeout=HANGS_SEC)
    assert process.returncode == code, output
    return output


def only_run(cwd: Path) -> Path:
    (folder,) = (path.parent for path in (cwd / "runs").glob(f"*/{run_folder.RUN}"))
    return folder


def until(there: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + HANGS_SEC
    while not (value := there()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return value


def result_of(folder: Path) -> dict[str, Any]:
    path = folder / run_folder.RESULT
    until(path.exists)
    return documents.read_json(path)


def events(folder: Path) -> list[Record]:
    return journal.events(folder / run_folder.JOURNAL)


def merged(folder: Path, kind: str) -> dict[str, Any]:
    rows = [record for record, _ in journal.read(folder / run_folder.JOURNAL) if record.kind == kind]
    return {key: value for row in rows for key, value in row.values.items()}


def tags(folder: Path) -> dict[str, Any]:
    return merged(folder, "tags")


def fitted(tmp_path: Path, trial: dict[str, Any], trainer: dict[str, Any] | None = None, **asked: Any) -> list[Path]:
    """The runs of a training in this process."""
    pl.seed_everything(1, verbose=False)
    callback = TimeTrial(runs_dir=str(tmp_path / "runs"), offline=True, system_metrics_interval_sec=0, **trial)
    module = own_script.Line(manual=asked.pop("manual", False))
    own_script.trainer(callback, **EPOCHS | (trainer or {})).fit(module, *own_script.loaders(**asked))
    return sorted((tmp_path / "runs").glob("2*"))


def test_a_script_becomes_a_run_that_reports_and_their_check_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = finished(begin(tmp_path, {"target": {"val_loss": "<=1e-5"}, "price_per_hour": 3.6}, {"max_epochs": 30}))
    folder = only_run(tmp_path)
    assert str(folder) in output
    metrics = result_of(folder)["metrics"]
    happened = events(folder)
    began, evaluated = clock.first(happened, "run_start"), [row for row in happened if row.key == "eval_accuracy"]
    assert began
    before, hit = evaluated[-2:]
    assert metrics["time/to_accuracy_sec"] == pytest.approx(hit.clock_sec - began.clock_sec)
    assert hit.values["metrics"]["val_loss"] <= 1e-5 < before.values["metrics"]["val_loss"]
    assert metrics["epochs/to_accuracy"] == hit.values["epoch_num"] == metrics["epochs/trained"]
    assert metrics["evaluations/to_accuracy"] == len(evaluated)
    assert metrics["time/evaluation_interval_sec"] == pytest.approx(hit.clock_sec - before.clock_sec)
    assert {row.values["samples"] for row in happened if row.key == "epoch_stop"} == {NUM_TRAIN}
    assert metrics["cost/to_accuracy_usd"] == pytest.approx(metrics["time/to_accuracy_sec"] * 1e-3)
    assert metrics["world_size"] == 1
    seen = tags(folder)
    assert (seen["clock"], seen["samples"]) == ("script", "first dimension of the batch")
    assert {"env.torch", "env.cpu", "config_hash", "script"} <= seen.keys()
    monkeypatch.chdir(tmp_path)
    assert main(["sync", "runs"]) == 0
    assert main(["report", "timetrial", "--out", "out", "--check"]) == 0


@pytest.mark.parametrize(
    ("trainer", "meshed"),
    [
        ({"strategy": "ddp"}, ()),
        pytest.param({"accumulate_grad_batches": 2}, (2, 1), marks=pytest.mark.exhaustive),
        ({}, (1, 2)),
    ],
    ids=["ddp", "fully_shard", "two that share a batch"],
)
def test_two_processes_that_lightning_starts_are_one_run(
    tmp_path: Path, trainer: dict[str, Any], meshed: Sequence[int]
) -> None:
    finished(begin(tmp_path, {"offline": True}, trainer | {"devices": 2}, meshed=meshed))
    folder = only_run(tmp_path)
    metrics = result_of(folder)["metrics"]
    assert metrics["world_size"] == 2
    assert [row.values["samples"] for row in events(folder) if row.key == "epoch_stop"] == [NUM_TRAIN] * 3
    windows = [row for row in events(folder) if row.key == "throughput_window"]
    assert {len(row.values["rank_ms"]) for row in windows} == {2}
    shares = meshed == (1, 2)
    assert ("once for 2 processes that share it" in tags(folder)["samples"]) == shares
    params = merged(folder, "params")
    assert params["strategy"] == ("ModelParallelStrategy" if meshed else "DDPStrategy")
    assert params["global_batch_size"] == BATCH * (1 if shares else 2) * trainer.get("accumulate_grad_batches", 1)


@pytest.mark.parametrize(
    ("fails", "kind", "words"), [("setup", "error", "no such file: words.txt"), ("step", "oom", "DefaultCPUAllocator")]
)
def test_a_script_that_raises_is_a_failed_run(tmp_path: Path, fails: str, kind: str, words: str) -> None:
    output = finished(begin(tmp_path, {"offline": True}, fails=fails), code=1)
    assert words in output
    result = result_of(only_run(tmp_path))
    assert (result["status"], result["failure"]["kind"]) == ("failed", kind)
    assert words in result["failure"]["message"]
    assert words in result["failure"]["traceback"]


@pytest.mark.exhaustive
def test_of_ranks_that_torchrun_starts_the_one_that_failed_first_is_the_cause(tmp_path: Path) -> None:
    trial, trainer = {"offline": True, "log_every_n_steps": 1}, {"strategy": "ddp", "devices": 2}
    # The first rank notices a lost connection, or torchrun's SIGTERM, whichever is sooner.
    finished(start(tmp_path, trial, trainer, launcher=TORCHRUN, fails="rank 1"), code=1)
    folder = only_run(tmp_path)
    result = result_of(folder)
    assert (result["status"], result["failure"]["rank"]) == ("failed", 1)
    assert result["failure"]["message"] == "ValueError: a bad word in shard 3"
    windows = [row for row in events(folder) if row.key == "throughput_window"]
    assert {len(row.values["rank_ms"]) for row in windows} == {2}


@pytest.mark.parametrize(("signum", "kind"), [(signal.SIGKILL, "signal:9"), (signal.SIGINT, "signal:2")])
def test_a_script_that_is_killed_leaves_a_run_that_says_so(tmp_path: Path, signum: int, kind: str) -> None:
    process = begin(tmp_path, {"offline": True}, slow=0.2)
    folder = until(lambda: next(iter((tmp_path / "runs").glob("2*")), None))
    until(lambda: (folder / run_folder.JOURNAL).exists() and clock.first(events(folder), "epoch_start"))
    process.send_signal(signum)
    process.communicate(timeout=HANGS_SEC)
    result = result_of(folder)
    assert (result["status"], result["failure"]["kind"]) == ("killed", kind)


def test_a_companion_that_is_killed_costs_the_training_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = begin(tmp_path, {}, slow=0.1)

    def companions() -> list[psutil.Process]:
        with suppress(psutil.Error):  # a child that has ended meanwhile
            children = psutil.Process(process.pid).children(recursive=True)
            return [child for child in children if "companion" in str(child.cmdline())]
        return []

    until(lambda: len(companions()) == 2)  # the run's, and the one that has forked it
    folder = until(lambda: next(iter((tmp_path / "runs").glob("2*")), None))
    until(lambda: (folder / run_folder.JOURNAL).exists() and clock.first(events(folder), "epoch_start"))
    for companion in companions():
        companion.kill()
    finished(process)
    assert result_of(only_run(tmp_path))["status"] == "finished"
    monkeypatch.chdir(tmp_path)
    assert main(["sync", "runs"]) == 0


def test_a_journal_that_cannot_grow_costs_the_training_nothing_and_is_a_failed_run(tmp_path: Path) -> None:
    room = 70_000  # The reserve for the result fits, and the journal of 40 epochs does not.
    trial = {"offline": True, "log_every_n_steps": 1}
    output = finished(begin(tmp_path, trial, {"max_epochs": 40}, room))
    assert "recording stopped, the training goes on" in output
    assert "fitted" in output
    result = result_of(only_run(tmp_path))
    assert (result["status"], result["failure"]["kind"]) == ("failed", "disk_full")
    assert "File too large" in result["failure"]["message"]


@pytest.mark.exhaustive  # tests/tracking/record/test_full_disk.py has the disk that fills
def test_a_disk_that_is_full_from_the_start_is_refused_before_the_training(tmp_path: Path) -> None:
    output = finished(start(tmp_path, {"offline": True}, max_file_bytes=1000), code=1)
    assert "File too large. Next: give a folder with free space" in output
    assert not list((tmp_path / "runs").iterdir())


def test_evaluations_within_an_epoch_are_not_training(tmp_path: Path) -> None:
    (folder,) = fitted(tmp_path, {"log_every_n_steps": 2}, {"val_check_interval": 0.25, "max_epochs": 2})
    happened = events(folder)
    evaluated = [row.values["epoch_num"] for row in happened if row.key == "eval_accuracy"]
    assert evaluated == [0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2]
    counts = [row.values["samples_count"] for row in happened if row.key == "eval_accuracy"]
    assert counts == [NUM_TRAIN * epoch for epoch in evaluated]
    assert merged(folder, "params")["eval_interval_samples"] == NUM_TRAIN // 4
    metrics = result_of(folder)["metrics"]
    epochs, evals = (clock.intervals(happened, name) for name in ("epoch", "eval"))
    within = sum(b - a for a, b in evals if any(c <= a and b <= d for c, d in epochs))
    assert 0 < within < sum(b - a for a, b in evals)
    assert metrics["time/train_sec"] == pytest.approx(sum(b - a for a, b in epochs) - within)
    assert metrics["epochs/trained"] == 2
    assert [row.values["samples"] for row in happened if row.key == "epoch_stop"] == [NUM_TRAIN] * 2
    assert sum(row.values["samples"] for row in happened if row.key == "throughput_window") == 2 * NUM_TRAIN


@pytest.mark.parametrize(
    ("trainer", "asked"),
    [
        ({"accumulate_grad_batches": 3, "precision": "bf16-mixed"}, {}),
        ({}, {"manual": True}),
        ({"limit_train_batches": NUM_TRAIN // BATCH}, {"endless": True}),
        ({"check_val_every_n_epoch": 2}, {}),
        ({}, {"validates": False}),
    ],
    ids=["accumulate", "manual", "endless", "every second", "no validation"],
)
def test_what_a_script_may_do_goes_on_working(tmp_path: Path, trainer: dict[str, Any], asked: dict[str, Any]) -> None:
    (folder,) = fitted(tmp_path, {"stop_at_target": False}, trainer, **asked)
    result = result_of(folder)
    assert result["status"] == "finished"
    assert result["metrics"]["epochs/trained"] == 3
    assert result["metrics"]["throughput/samples_per_sec"] > 0
    windows = [row for row in events(folder) if row.key == "throughput_window"]
    assert sum(row.values["samples"] for row in windows) == 3 * NUM_TRAIN
    expected = {"every second": 1}.get("every second" if "check_val_every_n_epoch" in trainer else "", 3)
    assert len(result["evaluations"]) == expected


def test_an_epoch_of_a_stream_is_as_long_as_the_one_before_and_one_that_ends_early_is_a_part(tmp_path: Path) -> None:
    options = {"max_epochs": 9, "max_steps": 34, "val_check_interval": 5}
    (folder,) = fitted(tmp_path, {}, options, streamed=100)  # 13 batches an epoch
    evaluated = [row.values.get("epoch_num") for row in events(folder) if row.key == "eval_accuracy"]
    assert evaluated == [None, None, 1.3846, 1.7692, 2.3846]
    assert [row.values["samples"] for row in events(folder) if row.key == "epoch_stop"] == [100, 100, 64]
    metrics = result_of(folder)["metrics"]
    assert metrics["epochs/trained"] == pytest.approx(2 + 8 / 13, abs=1e-4)
    assert metrics["time/epoch_sec"] == pytest.approx(metrics["time/train_sec"] / metrics["epochs/trained"])
    wait_for_companions()
    store = FolderRuns([tmp_path / "runs"])
    made = report.make(store, ["timetrial"], store.find(["timetrial"]), ["model"])
    assert audit(made.plain(), [tmp_path / "runs"]).differences == []


def test_fit_called_twice_is_two_runs(tmp_path: Path) -> None:
    callback = TimeTrial(
        {"val_loss": "<=1e9"}, runs_dir=str(tmp_path / "runs"), offline=True, system_metrics_interval_sec=0
    )
    for _ in range(2):
        own_script.trainer(callback, **EPOCHS).fit(own_script.Line(), *own_script.loaders())
    folders = sorted((tmp_path / "runs").glob("2*"))
    figures = [result_of(folder)["metrics"] for folder in folders]
    assert [row["epochs/to_accuracy"] for row in figures] == [1, 1]
    assert figures[1]["time/init_sec"] <= events(folders[1])[-1].clock_sec - events(folders[0])[-1].clock_sec


def test_a_batch_without_tensors_has_no_rate(tmp_path: Path) -> None:
    (folder,) = fitted(tmp_path, {"samples": lambda batch: None})
    metrics = result_of(folder)["metrics"]
    assert not [key for key in metrics if key.startswith("throughput/samples")]
    assert metrics["throughput/step_ms_p50"] > 0


def test_with_some_batches_of_unknown_size_run_report_and_audit_know_no_rate(tmp_path: Path) -> None:
    """The rate of the windows before them stays a curve; the last value of that is not the run's rate."""
    sizes = [8] * 20 + [None]
    (folder,) = fitted(tmp_path, {"samples": lambda batch: sizes.pop(0) if sizes else 8, "log_every_n_steps": 5})
    wait_for_companions()
    rates = [record.step for record, _ in journal.read(folder / run_folder.JOURNAL) if RATE in record.values]
    assert rates
    assert max(step or 0 for step in rates) <= 20
    store = FolderRuns([tmp_path / "runs"])
    made = report.make(store, ["timetrial"], store.find(["timetrial"]), ["model"])
    assert RATE not in result_of(folder)["metrics"]
    assert RATE not in made.runs[0].metrics
    assert "1 run without a rate: the script trained on batches of unknown size" in str(made.warnings)
    assert audit(made.plain(), [tmp_path / "runs"]).differences == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target": 0.9}, r"target=0.9: not targets. Allowed: a dict such as \{'val_acc': 0.9\}"),
        ({"target": {"val_acc": "high"}}, "target=.*high.*: not a target"),
        ({"target": {3: 1}}, "target=3: not a metric's name"),
        ({"log_every_n_steps": 0}, "log_every_n_steps=0: must be a whole number, 1 or more"),
        ({"price_per_hour": -1}, "price_per_hour=-1: must be a number, 0 or more"),
        ({"uri": "http://me:hunter22@host/"}, "uri=.*: contains a password"),
        ({"uri": "mlruns"}, "uri=mlruns: not a tracking server.*Allowed: sqlite:///FILE"),
        ({"name": "../../x"}, r"name=\.\./\.\./x: cannot name folders and runs. Allowed: 1 to 40 ASCII letters"),
        ({"name": "a\nb"}, r"name='a\\nb': contains a control character"),
        ({"name": ""}, "name=: cannot name folders and runs"),
        ({"dataset": "../x"}, r"dataset=\.\./x: cannot name folders and runs"),
        ({"experiment": ""}, "experiment=: is empty. Next: give a name"),
        ({"experiment": "x" * 501}, "has 501 characters"),
        ({"runs_dir": ""}, "runs_dir=: is empty. Next: give the folder"),
        ({"runs_dir": "a\x1b[2J"}, "contains a control character"),
        ({"dataset": 3}, "dataset=3: must be a text"),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TimeTrial(**arguments)
    with pytest.raises(ConfigError, match=words), time_trial(**arguments):
        raise AssertionError("the training began")


def wait_for_companions() -> None:
    """They add what limited a run, which a report that is made before that lacks."""
    for companion in THIS_PROCESS.companions:
        companion.wait(HANGS_SEC)


def test_its_figures_pass_the_audit(tmp_path: Path) -> None:
    fitted(tmp_path, {"target": {"val_loss": "<=0.01"}}, {"val_check_interval": 0.5})
    wait_for_companions()
    store = FolderRuns([tmp_path / "runs"])
    made = report.make(store, ["timetrial"], store.find(["timetrial"]), ["model"])
    assert made.runs[0].metrics["time/to_accuracy_sec"] > 0
    assert audit(made.plain(), [tmp_path / "runs"]).differences == []
