"""The answer of a report: what it says first of settings that are told apart, of those that are not, and of misses."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.few_runs import repeated, written
from tests.support.studied import SWEEP, write_sweep
from tracking.analysis.audit import audit
from tracking.analysis.compare import runs_that_would_tell
from tracking.analysis.report import page
from tracking.analysis.report.report import Report
from tracking.base.event_stream import EventStream
from tracking.cli import report as command
from tracking.jobs.plan import Job, sweep, sweep_report
from tracking.jobs.queues import sweep_end
from tracking.record import documents, run_folder


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Report]:
    return functools.partial(written, tmp_path)


def headline(made: Report) -> str:
    (answer,) = made.answers
    return answer.headline


def test_the_best_of_settings_that_differ_is_said_with_its_factor_interval_and_price(
    make: Callable[..., Report],
) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.3, 0.301, 0.302, 0.303))
    made = make(runs + repeated(config={"gpus": 4}, steps=(0.05, 0.0505, 0.0515, 0.052)))
    times = [8.736 / 2.724, 4 * 2.724 / 8.736]
    said = headline(made)
    assert said.startswith("4 GPUs are quickest: 2.724 ± 0.011 s to accuracy 0.9 (n = 4), ")
    assert f"{times[0]:.3g} times as fast as 1 GPU (" in said
    assert said.endswith(f" with 95 % confidence), at {times[1]:.2g} times the GPU-seconds.")


def test_one_run_each_is_too_few_and_the_advice_says_how_long_it_takes(make: Callable[..., Report]) -> None:
    made = make([{"config": {"precision": "fp32"}}, {"config": {"precision": "bf16"}, "step_sec": 0.05}])
    seconds = sum(2 * (run.end_ms - run.start_ms) / 1e3 for run in made.runs if run.end_ms)
    assert headline(made) == (
        "bf16 is quickest so far: 2.700 s to accuracy 0.9 (one run), 1.44 times as fast as fp32. One run each is too "
        f"few to tell; start with 2 more seeds of each (about {seconds:.0f} seconds)."
    )


def test_a_single_run_beside_several_is_named(make: Callable[..., Report]) -> None:
    made = make([*repeated(config={"gpus": 1}, steps=(0.1, 0.104, 0.108)), {"config": {"gpus": 2}, "step_sec": 0.05}])
    assert "One run of 2 GPUs is too few to tell; start with 2 more seeds of 2 GPUs (about" in headline(made)


def test_how_many_more_seeds_would_tell_is_the_power_computations_number(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.104, 0.108))
    made = make(runs + repeated(config={"gpus": 2}, steps=(0.097, 0.101, 0.105)), metric="time/epoch_sec")
    best = made.best(made.tasks[0])
    assert best
    assert best.next
    needed = runs_that_would_tell(best.next, "time/epoch_sec", best.level)
    assert needed
    assert f"; {needed.first - 3} more seeds of each (about " in headline(made)
    assert headline(made).endswith("would tell in 80 % of cases, if the lead is as large as it looks.")
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path]).differences == []


def test_no_run_that_reached_its_target_is_said_with_how_they_ended(make: Callable[..., Report]) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11), accuracies=(0.1, 0.2))
    runs += [{"config": {"gpus": 2, "seed": 5}, "failure": "timeout", "failed_after": (0.1,)}]
    assert headline(make(runs)) == "No run reached accuracy 0.9: 2 missed it, 1 stopped before it."


def test_what_is_always_so_is_not_said(make: Callable[..., Report]) -> None:
    made = make(repeated(config={"gpus": 1}, steps=(0.1, 0.11)) + repeated(config={"gpus": 2}, steps=(0.05, 0.06)))
    for words in ("Counted as", "Reached the target", "not counted", "vgg on digits", "0 of"):
        assert words not in made.answer


def test_a_run_that_failed_is_said_not_to_be_counted(make: Callable[..., Report]) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11))
    made = make([*runs, {"config": {"gpus": 1, "seed": 9}, "failure": "oom"}])
    assert made.answers[0].beside == "1 of 3 runs is not counted: failed: oom (1)."


def test_an_imported_logs_runs_are_not_to_be_repeated(make: Callable[..., Report], tmp_path: Path) -> None:
    made = make([{"config": {"gpus": 1}}, {"config": {"gpus": 2}, "step_sec": 0.05}])
    for run in made.runs:
        folder = next(path for path in (tmp_path / SWEEP).iterdir() if path.name.endswith(run.name))
        journal = folder / "journal.jsonl"
        journal.write_text(journal.read_text().replace('"values": {', '"values": {"program": "imported", ', 1))
    from tracking.analysis.report import report
    from tracking.analysis.results.folder_runs import FolderRuns

    store = FolderRuns([tmp_path])
    again = report.make(store, [SWEEP], store.find([SWEEP]))
    assert headline(again).endswith("One run each is too few to tell.")
    assert audit(json.loads(json.dumps(again.plain())), [tmp_path]).differences == []


@pytest.mark.parametrize("key", ["mean", "factor", "seconds", "n", "ratio"])
def test_an_altered_number_of_the_answer_is_found(make: Callable[..., Report], tmp_path: Path, key: str) -> None:
    made = make([{"config": {"gpus": 1}}, {"config": {"gpus": 4}, "step_sec": 0.05}])
    document = json.loads(json.dumps(made.plain()))
    assert audit(document, [tmp_path]).differences == []
    [altered] = [each["values"] for each in document["sentences"] if key in each["values"] and "num_better" not in
                 each["values"]]  # fmt: skip
    altered[key] *= 1.5
    assert audit(document, [tmp_path]).differences


def test_an_altered_word_of_the_answer_is_found(make: Callable[..., Report], tmp_path: Path) -> None:
    document = json.loads(json.dumps(make(repeated(steps=(0.1, 0.11))).plain()))
    assert audit(document | {"answer": document["answer"].replace("1 GPU", "2 GPUs")}, [tmp_path]).differences


def test_settings_are_ranked_by_the_metric_and_the_tables_are_folded(make: Callable[..., Report]) -> None:
    runs = [run for gpus, step in ((1, 0.1), (2, 0.05), (4, 0.3)) for run in
            repeated(config={"gpus": gpus}, steps=(step, 1.01 * step, 1.02 * step))]  # fmt: skip
    made = make(runs)
    (ranking,) = made.rankings
    assert ranking.column("gpus") == ["2", "1", "4"]
    assert ranking.column("times the best")[0] == "1"
    assert made.plots[0].name == "1-settings"
    html, markdown = page.html(made), page.markdown(made)
    for text in (html, markdown):
        places = [text.index(words) for words in ("are quickest", "ettings ranked", "report-1-accuracy.png"
                  if text is markdown else "<figure>", "<details><summary>Details", "hich differ")]  # fmt: skip
        assert places == sorted(places)


def test_runs_of_one_setting_on_a_shared_cpu_are_named_with_what_to_do_and_are_not_ranked(
    make: Callable[..., Report], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tracking.base.console import make_console

    tags = {"neighbours": "cpu: 31 % of 2 cores (python)", "env.gpu": "none"}
    made = make([{"config": {"gpus": 0}, "tags": tags}])
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path]).differences == []
    (folder,) = (path.parent for path in (tmp_path / SWEEP).glob("*/result.json"))
    add_limits(folder, {"bottleneck/processor_fraction": 0.6}, {})
    made = again(tmp_path)
    (answer,) = made.answers
    assert answer.headline.startswith("vgg on digits, the CPU: ")
    assert answer.headline.endswith(". One setting: nothing to rank.")
    assert "<summary>1 warning</summary>" in page.html(made)
    assert "**1 warning**" in page.markdown(made)
    assert not any(plot.name.endswith("throughput") for plot in made.plots)
    assert answer.beside.startswith("The CPU is limited by the cores of the CPU (60 % of the time); try first: run it")
    assert "cores of its own, since other processes had a large share of them; then a GPU" in answer.beside
    assert not made.rankings
    command.show(make_console(), made, Path("reports/x"), details=True)
    printed = capsys.readouterr().out
    assert printed.index("vgg on digits, the CPU: ") < printed.index("careful: ") < printed.index("devices")


@pytest.mark.parametrize("step_sec", [0.05, 0.5])
def test_the_cpu_beside_a_gpu_is_called_so_and_the_audit_agrees(
    make: Callable[..., Report], tmp_path: Path, step_sec: float
) -> None:
    made = make([{"config": {"gpus": 0}, "step_sec": step_sec}, {"config": {"gpus": 1}, "step_sec": 0.1}])
    quickest = "The CPU is" if step_sec < 0.1 else "1 GPU is"
    assert headline(made).startswith(f"{quickest} quickest so far: ")
    assert ("as fast as the CPU" in headline(made)) is (step_sec > 0.1)
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path]).differences == []


def add_limits(folder: Path, metrics: dict[str, float], limits: dict[str, Any]) -> None:
    """Journal a run's shares of its limits, and put `limits` into its result."""
    content: dict[str, Any] = json.loads((folder / "result.json").read_text())
    documents.write_json(folder / "result.json", content | {"bottleneck": limits})
    lines = (folder / "journal.jsonl").read_text().splitlines()
    last = json.loads(lines[-1]) | {"values": metrics}
    (folder / "journal.jsonl").write_text("\n".join([*lines, json.dumps(last)]) + "\n")


def again(root: Path, *searched: Mapping[str, Any]) -> Report:
    """The report of the runs below `root`, which a test has changed."""
    from tracking.analysis.report import report
    from tracking.analysis.results.folder_runs import FolderRuns

    store = FolderRuns([root])
    return report.make(store, [SWEEP], store.find([SWEEP]), searched=searched)


def test_a_limits_ceiling_and_the_time_without_it_are_means_of_the_results(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    make(repeated(config={"gpus": 1}, steps=(0.1, 0.11)))
    for number, result in enumerate(sorted((tmp_path / SWEEP).glob("*/result.json"))):
        row = {"cause": "dram", "share": 0.4 + number / 10, "at_least_sec": 2.0, "ceiling": 3.9e12, "unit": "B/s"}
        limits = {"total_sec": 4.0 + number, "possible": [row | {"reached": 0.6}]}
        add_limits(result.parent, {"bottleneck/dram_fraction": 0.4}, limits)
    (table,) = [table for table in again(tmp_path).tables if table.kind == "possible"]
    assert table.text()[0][2:] == ["45", "4.5", "2", "3.9 TB/s", "60"]


def test_the_answer_of_a_search_stands_alone_on_the_page_and_in_the_terminal(
    make: Callable[..., Report], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tracking.base.console import make_console

    make(repeated(config={"gpus": 1}, steps=(0.1, 0.11)))
    made = again(tmp_path, {"sweep": SWEEP, "words": "gpus=1 batch_size=8: 9.1 s (8.8 to 9.4, n = 5)."})
    for text in (page.html(made), page.markdown(made)):
        assert "9.1 s (8.8 to 9.4" in text
        assert "1 GPU: " not in text, "its test does not know of the search's looks"
    command.show(make_console(), made, Path("reports/x"))
    shown = capsys.readouterr().out
    assert shown.startswith("gpus=1 batch_size=8: 9.1 s")
    assert "1 GPU: " not in shown
    assert "1 GPU: " not in sweep_report.note(made)


def test_a_sweeps_answer_is_two_lines_at_most(tmp_path: Path) -> None:
    for number, lines in ((2, ["a", "b"]), (3, ["3 workloads: the report says for each which setting is the best."])):
        documents.write_json(tmp_path / "report.json", {"headlines": ["a", "b", "c"][:number]})
        assert sweep_report.headlines(tmp_path) == lines
    (tmp_path / sweep_report.WHY_NONE).write_text("no font")
    assert sweep_report.headlines(tmp_path) == []


def test_settings_that_are_seeds_cannot_be_repeated_with_other_seeds(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    made = make(repeated(config={"gpus": 1}, steps=(0.1, 0.11)), by=["seed"])
    assert headline(made).endswith("One run each is too few to tell.")
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path]).differences == []


def test_a_sweep_ends_with_its_answer_below_its_table(tmp_path: Path) -> None:
    folder, *_ = write_sweep(tmp_path, "sqlite:///none.db")
    documents.write_json(folder / sweep.DEFINITION, {"argv": [], "jobs": []})
    jobs = [Job(run_folder.read_config(path.parent), [], path.parent) for path in sorted(folder.glob("*/config.yaml"))]
    for job in jobs:
        assert job.folder
        job.result = run_folder.read_result(job.folder)
    said = io.StringIO()
    sweep_end.finish(Console(file=said, width=200), EventStream(), jobs, folder, None)
    (line,) = sweep_report.headlines(folder)
    assert (
        said.getvalue().index("sweep 20260101") < said.getvalue().index(line) < said.getvalue().index("sweep folder:")
    )
