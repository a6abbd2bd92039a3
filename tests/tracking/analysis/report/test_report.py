"""The report on one sweep whose runs were written by hand: every figure, the files, and what cannot be reported."""

from __future__ import annotations

import csv
import json
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.support.mlflow_server import answering
from tests.support.studied import FOUR, ONE, START_MS, SWEEP, config, make_run, make_sweep, to_accuracy, write_sweep
from tracking.__main__ import main
from tracking.analysis.compare.gate import Question, judge
from tracking.analysis.report import page, report
from tracking.analysis.report.report import Report
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.analysis.results.mlflow_runs import MlflowRuns
from tracking.jobs.follow import sync
from tracking.jobs.plan import sweep_report
from tracking.record import run_folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    root = tmp_path_factory.mktemp("report")
    shutil.copy(empty_database, root)
    outcomes = sync.sync(write_sweep(root / "runs", f"sqlite:///{root / 'mlflow.db'}"))
    assert {outcome.state for outcome in outcomes} == {"complete"}
    return root


@pytest.fixture(scope="module")
def made(root: Path) -> Report:
    store = FolderRuns([root / "runs"])
    return report.make(store, [SWEEP], store.find([SWEEP]))


def figure(made: Report, heading: str, **setting: str) -> Any:
    matching = [
        candidate
        for candidate in made.figures
        if candidate.heading == heading and setting.items() <= candidate.setting.items()
    ]
    assert len(matching) == 1, [candidate.setting for candidate in matching]
    return matching[0].estimate


def test_means_are_of_the_runs_that_count_with_error_and_olympic_mean(made: Report) -> None:
    times = [to_accuracy(step) for step in ONE]
    mean_time = figure(made, "time to accuracy (s)", gpus="1")
    assert mean_time.n == 5
    assert mean_time.mean == pytest.approx(statistics.fmean(times))
    assert mean_time.error == pytest.approx(statistics.stdev(times) / 5**0.5)
    assert mean_time.olympic == pytest.approx(statistics.fmean(times[1:4]))
    two = figure(made, "time to accuracy (s)", gpus="2")
    assert (two.n, two.olympic) == (3, None)
    assert figure(made, "without evaluation (s)", gpus="2").mean == pytest.approx(24 * 0.06)
    with_missed = figure(made, "minutes an epoch", gpus="4")
    assert (with_missed.n, with_missed.mean) == (4, pytest.approx(8 * statistics.fmean((*FOUR, 0.05)) / 60))
    rate = statistics.fmean(32 / step for step in ONE)
    assert figure(made, "samples/s", gpus="1").mean == pytest.approx(rate)
    assert figure(made, "cost to accuracy (USD)", gpus="2").mean == pytest.approx(0.002 * two.mean)


def test_speed_up_and_efficiency_are_over_the_fewest_devices_with_their_error(made: Report) -> None:
    on_one, on_two = (figure(made, "time to accuracy (s)", gpus=gpus) for gpus in ("1", "2"))
    speed_up, efficiency = (figure(made, heading, gpus="2") for heading in ("speed-up", "efficiency"))
    assert speed_up.mean == pytest.approx(on_one.mean / on_two.mean)
    relative = ((on_one.error / on_one.mean) ** 2 + (on_two.error / on_two.mean) ** 2) ** 0.5
    assert speed_up.error == pytest.approx(speed_up.mean * relative)
    assert efficiency.mean == pytest.approx(speed_up.mean / 2)
    assert efficiency.error == pytest.approx(speed_up.error / 2)
    assert figure(made, "speed-up", gpus="1").text() == "1.000"
    table = next(table for table in made.tables if table.title.startswith("Speed-ups"))
    four = figure(made, "speed-up", gpus="4")
    assert table.text() == [["vgg on digits to accuracy 0.9", "", "1.000", speed_up.text(), four.text()]]
    assert four.text().startswith("≤ ")


def test_runs_that_did_not_get_there_count_against_their_setting(made: Report) -> None:
    """One missed, one timed out after two of three epochs, and one diverged, which is as good as the latest."""
    reached = [to_accuracy(step) for step in FOUR]
    known = [*reached, to_accuracy(0.05), to_accuracy(0.05, 2), max(*reached, to_accuracy(0.05))]
    four = figure(made, "time to accuracy (s)", gpus="4")
    assert (four.n, four.bound, four.olympic) == (6, "≥", None)
    assert four.mean == pytest.approx(statistics.fmean(known))
    assert four.text().endswith("(olympic invalid: several missed)")
    assert "It leaves out one run that did not reach the target, and is" in made.tables[0].note
    shares = ["5 of 5 (57-100 %)", "3 of 3", "3 of 5 (23-88 %); 1 stopped"]
    assert made.tables[0].column("reached") == shares
    assert figure(made, "cost to accuracy (USD)", gpus="4").bound == "≥"
    assert figure(made, "epochs", gpus="4").mean == pytest.approx((3 * 3 + 3 + 2 + 3) / 6)
    assert figure(made, "samples/s", gpus="4").bound == ""
    best = "2 GPUs are quickest so far: 2.94 ± 0.14 s to accuracy 0.9 (n = 3)"
    assert four.mean < figure(made, "time to accuracy (s)", gpus="2").mean  # So this bound gives no factor over 4 GPUs.
    assert f"{best}, 1.57 times as fast as 1 GPU" in made.answer
    assert "That cannot be told apart from 1 GPU or 4 GPUs" in made.answer
    assert "as fast as 4 GPUs" not in made.answer
    assert "Reached the target: 4 GPUs in 3 of 5 runs (23-88 %), 1 stopped before it." in made.answer
    (pair,) = [pair for _, pair in made.comparisons if {"gpus=2", "gpus=4"} == {pair.better.name, pair.worse.name}]
    assert pair.better.name == "gpus=2"  # All of gpus=4 that got there were sooner, though.
    assert not pair.told_apart
    said = next(table for table in made.tables if table.title.endswith("which differ"))
    assert "3 of 3 against 3 of 5 (23-88 %); 1 stopped" in said.column("reached")


def test_runs_that_do_not_count_are_listed_with_the_reason(made: Report) -> None:
    whys = {run.params["seed"]: why for run, _, why in made.tasks[0].excluded}
    assert whys == {
        "11": "diverged: nan",
        "12": "failed: signal:9",
        "13": "target missed",
        "14": "interrupted and resumed",
        "15": "stopped: timeout",
    }
    table = next(table for table in made.tables if table.title == "Runs not in every mean: 5 of 16")
    assert len(table.rows) == 5
    warned = " ".join(made.warnings)
    assert "gpus=4: 3 of 5 (23-88 %) reached the target; the others count against it" in warned
    assert "gpus=4: 1 stopped by a time limit at 1.8 s; whether it would have reached the target is not known" in warned
    assert made.tables[0].column("n") == ["5 of 6", "3 of 4", "3 of 6"]


def test_missed_runs_count_for_rates_where_that_is_asked_for(root: Path) -> None:
    store = FolderRuns([root / "runs"])
    made = report.make(store, [SWEEP], store.find([SWEEP]), with_missed=True)
    assert figure(made, "samples/s", gpus="4").n == 4
    assert figure(made, "time to accuracy (s)", gpus="4").n == 6
    assert made.tables[0].column("n")[2] == "4 of 6"


def test_a_report_from_mlflow_is_that_from_folders(root: Path, made: Report, mlflow_environment: None) -> None:
    store = MlflowRuns(f"sqlite:///{root / 'mlflow.db'}")
    ours, theirs = report.make(store, [SWEEP], store.find([SWEEP])).plain(), made.plain()
    assert ours.pop("source") != theirs.pop("source")
    assert ours == theirs


@pytest.fixture
def here(root: Path, monkeypatch: pytest.MonkeyPatch, mlflow_environment: None) -> Path:
    monkeypatch.chdir(root)
    return root


@pytest.mark.pictures
def test_the_command_writes_all_files_prints_the_table_and_checks_every_figure(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", SWEEP, "--out", "out", "--check"]) == 0
    printed = capsys.readouterr().out
    assert "5 of 6" in printed
    assert printed.startswith("2 GPUs are quickest so far")
    assert "which differ" not in printed
    assert "report.html; --details prints all tables" in printed
    assert "from 16 journals in runs: all agree" in printed
    content = json.loads((here / "out" / "report.json").read_text())
    with (here / "out" / "report.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [entry["text"] for entry in content["figures"]]
    markdown = (here / "out" / "report.md").read_text()
    for name in re.findall(r"!\[.*?\]\((.*?)\)", markdown):
        assert (here / "out" / name).read_bytes().startswith(b"\x89PNG")
    names = {path.stem.removeprefix("report-") for path in (here / "out").glob("*.png")}
    assert names == {"1-accuracy", "1-settings", "1-reached", "1-scaling", "1-throughput", "1-utilisation", "1-cost"}
    for text in (markdown, (here / "out" / "report.html").read_text()):
        assert all(headline in text for headline in content["headlines"])
        assert "target missed" in text


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing"], 2, rf"nothing: no sweep.*{SWEEP}.*studies"),
        ([SWEEP, "--by", "colour"], 2, "--by colour: no run has such a param.*Allowed: batch_size"),
        ([SWEEP, "--metric", "eval/beauty"], 2, "--metric eval/beauty: no run has it. "),
        ([SWEEP, "--metric", "eval/acuracy"], 2, r"no run has it. Did you mean eval/accuracy or \S+\?"),
        ([SWEEP, "--metric", "zzz"], 2, "no run has it. Allowed: .*eval/accuracy"),
        (["vgg-digits-fp32-4gpu-seed11"], 2, r"no run finished: nan \(1\)"),
        ([SWEEP, "--uri", "sqlite:///none.db"], 2, r"none\.db: no such database. Next: give --uri"),
        ([SWEEP, "--out", "mlflow.db/x"], 2, r"mlflow\.db/x: Not a directory\. Next: give --out a folder"),
    ],
)
def test_what_cannot_be_reported_is_said_in_words(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert main(["report", *arguments]) == code
    assert re.search(words, capsys.readouterr().err)


def test_a_server_that_does_not_answer_writes_no_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(500) as (uri, _):
        assert main(["report", SWEEP, "--uri", uri, "--out", "none"]) == 1
    assert "No report was written. Next: try again, or give --from-folders" in capsys.readouterr().err
    assert not (here / "none").exists()


def test_the_report_is_attached_to_the_sweeps_parent_run_with_the_answer(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    command = ["report", SWEEP, "--out", "attached", "--attach"]
    assert main(command) == main(command) == 0  # a second time puts it in the place of the first
    run_id = re.findall(r"attached to the run (\w+)", capsys.readouterr().out)[-1]
    client = MlflowClient(f"sqlite:///{here / 'mlflow.db'}")
    parent = client.get_run(run_id)
    assert parent.data.params == {"num_jobs": "16"}
    answer = json.loads((here / "attached" / "report.json").read_text())["answer"]
    assert parent.data.tags["mlflow.note.content"].count(answer) == 1
    names = {file.path for file in client.list_artifacts(run_id)}
    assert {"report.html", "report.md", "report.csv", "report-1-scaling.png"} <= names
    assert main(["report", "vgg-digits-fp32-1gpu-seed1", "--from-folders", "--attach"]) == 2
    assert "--attach: writes to MLflow" in capsys.readouterr().err


def test_a_sweep_ends_with_its_report_in_its_folder(tmp_path: Path) -> None:
    folder, *_ = write_sweep(tmp_path, "sqlite:///none.db")
    note = sweep_report.write(folder)
    said = "2 of 16 runs are not counted: failed: signal:9 (1), interrupted and resumed (1)."
    assert said in (folder / "report.md").read_text()
    assert (folder / "report.html").exists()
    (headline,) = sweep_report.headlines(folder)
    assert headline.startswith("2 GPUs are quickest so far: 2.94 ± 0.14 s to accuracy 0.9 (n = 3)")
    assert note.startswith(headline)
    assert note.endswith("among the artifacts.\n\n---\n\n")


def test_the_report_of_a_study_is_by_the_studys_axes(tmp_path: Path) -> None:
    folder, *_ = write_sweep(tmp_path, "sqlite:///none.db")
    first = min(path.parent for path in folder.glob("*/config.yaml"))
    of_study = run_folder.read_config(first)
    of_study.study.by = ["gpus", "env.gpu"]
    run_folder.write_config(first, of_study)
    sweep_report.write(folder)
    assert json.loads((folder / "report.json").read_text())["by"] == ["gpus", "env.gpu"]


def test_a_failed_attempt_of_a_job_that_was_run_again_counts_no_more(tmp_path: Path) -> None:
    for name in (SWEEP, "baseline"):
        sweep = make_sweep(tmp_path, name, "sqlite:///none.db", 3)
        for seed in (1, 2):
            make_run(sweep, config(seed=seed), "sqlite:///none.db")
        for after_ms, failure in enumerate(("oom", "signal:9", None)):
            make_run(sweep, config(seed=3), "sqlite:///none.db", failure=failure, start_ms=START_MS + after_ms)
    store = FolderRuns([tmp_path])
    made = report.make(store, [SWEEP], store.find([SWEEP]))
    assert made.answer == (
        "vgg on digits, 1 GPU: 3.900 ± 0.000 s to accuracy 0.9 (n = 3). One setting: nothing to rank."
    )
    assert "left out: 2 failed attempts of jobs that their sweep ran again" in made.warnings
    question = Question({"baseline": ["baseline"], "candidate": [SWEEP]}, "time/to_accuracy_sec", 0.1)
    assert [side.failed for side in judge(store, question).sides] == [{}, {}]


def test_a_report_that_cannot_be_made_leaves_the_sweep_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, *_ = write_sweep(tmp_path, "sqlite:///none.db")

    def broken(*_: Any) -> None:
        raise RuntimeError("no font")

    monkeypatch.setattr(page, "write", broken)
    assert sweep_report.write(folder) == ""
    assert (folder / "report.failed.txt").read_text() == "RuntimeError: no font\n"
