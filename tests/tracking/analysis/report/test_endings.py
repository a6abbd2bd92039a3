"""Whatever a run ended by, its report is the same from MLflow and from its folder, and both agree with its journal."""

from __future__ import annotations

import json
import math
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support import studied
from tests.support.studied import START_MS, SWEEP, Writer, config, make_run, make_sweep
from tracking.__main__ import main
from tracking.analysis.results import FolderRuns, MlflowRuns, Run
from tracking.jobs.follow import sync
from tracking.jobs.node import outcome, reopen, signals
from tracking.record import Checkpoint, Failure, Result, checkpoints, run_folder
from tracking.store.mirror import Mirror

pytestmark = pytest.mark.slow  # an empty database takes seconds to make

FAILURES = ("oom", "nan", "timeout", "bad_input", "error", "disk_full", "signal:9", "signal:15")
# By seed, what became of the runs that are not counted, as the report says it.
WHY = {
    3: "target missed",
    **{10 + place: f"failed: {kind}" for place, kind in enumerate(FAILURES)},
    11: "diverged: nan",
    12: "stopped: timeout",
    17: "stopped: signal:15",
    30: "stopped: signal:2",
    31: "failed: error",
    32: "failed: signal:9",
    33: "not ended",
    40: "interrupted and resumed",
    41: "failed: oom",
    42: "interrupted and resumed",
}


class Sweep:
    """A sweep's folders as they come to be, each mirrored at once, as its launcher does it."""

    def __init__(self, root: Path) -> None:
        self.uri = f"sqlite:///{root / 'mlflow.db'}"
        self.folder = make_sweep(root / "runs", SWEEP, self.uri, len(WHY) + 3)

    def add(self, seed: int, **options: Any) -> Path:
        """A run of this seed; the next one starts a second later."""
        asked = config(seed=seed, price=3.6)
        options = {"start_ms": START_MS + 1000 * seed, "fingerprint": studied.CLOCKS, **options}
        return make_run(self.folder, asked, self.uri, **options)

    def unended(self, seed: int, **options: Any) -> Path:
        folder = self.add(seed, **options)
        (folder / run_folder.RESULT).unlink()
        return folder

    def continued(self, seed: int, failure: str | None = None, **options: Any) -> Path:
        """A run that MLflow had as a killed one, and that was resumed after its first epoch."""
        folder = self.add(seed, failure="signal:15")
        mirrored(folder)
        reopen(folder, Checkpoint(checkpoints.path_of(folder, 1), 1))
        Mirror(folder).step()
        studied.go_on(folder, config(seed=seed, price=3.6), START_MS + 60_000, failure, **options)
        return folder


def mirrored(*folders: Path) -> None:
    outcomes = sync.sync(folders, ended=True)
    assert {outcome.state for outcome in outcomes} == {"complete"}, outcomes


def ended(folder: Path, failure: Failure) -> Path:
    run_folder.write_result(folder, Result("failed", failure=failure))
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    root = tmp_path_factory.mktemp("endings")
    shutil.copy(empty_database, root)
    sweep = Sweep(root)
    for seed, step_sec in ((1, 0.10), (2, 0.11)):
        mirrored(sweep.add(seed, step_sec=step_sec))
    mirrored(sweep.add(3, accuracies=(0.1, math.nan)))
    for place, kind in enumerate(FAILURES):
        folder = sweep.add(10 + place, failure=kind)
        odd = {"train/loss": math.nan, "train/rate": math.inf, "train/samples": -math.inf}
        Writer(folder / run_folder.JOURNAL, START_MS).add("metrics", 6.0, step=1, values=odd)
        mirrored(folder)
    for start_ms, kind in ((START_MS, "oom"), (START_MS + 1, "signal:9")):  # attempts of a job that was run again
        mirrored(sweep.add(4, failure=kind, start_ms=start_ms))
    mirrored(sweep.add(4, step_sec=0.12))
    folder = sweep.unended(30, accuracies=(0.1,))
    outcome.stopped(folder, signals.Interrupted(signal.SIGINT))  # Ctrl-C
    mirrored(folder)
    mirrored(ended(sweep.unended(31), Failure("error", "its weights could not be saved")))  # after its last evaluation
    mirrored(sweep.unended(32))  # its launcher was killed, so it is ended by who finds it
    Mirror(sweep.unended(33, accuracies=(0.1,))).step()
    mirrored(sweep.continued(40), sweep.continued(41, failure="oom"), sweep.continued(42, accuracies=(0.1, 0.2)))
    mirrored(sweep.folder)
    return root


@pytest.fixture
def here(root: Path, monkeypatch: pytest.MonkeyPatch, mlflow_environment: None) -> Path:
    monkeypatch.chdir(root)
    return root


def without_mlflows(run: Run, kept: Run) -> str:
    tags = {key: value for key, value in run.tags.items() if not key.startswith("mlflow.") or key in kept.tags}
    shown = {**vars(run), "tags": tags}
    return "\n".join(
        f"{key}: {sorted(value.items()) if isinstance(value, dict) else value}" for key, value in shown.items()
    )


def test_every_run_is_the_same_from_both(here: Path) -> None:
    """Compared as text, in which a NaN equals itself."""
    pairs = zip(MlflowRuns().find([SWEEP]), FolderRuns([Path("runs")]).find([SWEEP]), strict=True)
    for ours, theirs in pairs:
        assert without_mlflows(ours, theirs) == without_mlflows(theirs, theirs)


@pytest.mark.parametrize(
    "options",
    [
        ["--check", "--with-missed"],
        ["--check", "--by", "precision,seed"],
        ["--check", "--metric", "throughput/samples_per_sec"],
        ["--metric", "train/loss", "--with-missed"],
        ["--check", "--metric", "eval/accuracy", "--with-missed"],
    ],
    ids=" ".join,
)
def test_the_reports_are_the_same_and_agree_with_the_journals(
    here: Path, tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for name, where in (("mlflow", []), ("folders", ["--from-folders", "--runs-dir", str(here / "runs")])):
        out = tmp_path / name
        code = main(["report", SWEEP, "--out", str(out), *options, *where])
        printed = capsys.readouterr().out
        assert code == 0, printed
        assert ("all agree" in printed) == ("--check" in options)
        source = json.loads((out / "report.json").read_text())["source"]
        files = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
        texts.append({file: text.replace(source.encode(), b"SOURCE") for file, text in files.items()})
    assert texts[0].keys() == texts[1].keys()
    for file, text in texts[0].items():
        assert text == texts[1][file], file
    content = json.loads(texts[0]["report.json"])
    left = {int(run["name"].rpartition("seed")[2].partition("-")[0]): run["why"] for run in content["excluded"]}
    assert left == {seed: why for seed, why in WHY.items() if seed != 3 or "--with-missed" not in options}
    bounds = {figure["bound"] for figure in content["figures"] if figure["figure"] == "last accuracy"}
    assert bounds == ({"≤"} if "precision,seed" not in options else {""})  # It became NaN in a run.
    assert any(warning.startswith("left out: 2 failed attempts") for warning in content["warnings"])
