"""The table that a run ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.composing import composed
from tracking.jobs.follow.result_table import run_rows, run_table
from tracking.measure import kernels
from tracking.record import Failure, Result, run_folder


def test_the_folder_of_a_run_and_its_kernels_are_shown_from_where_the_user_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    shares = {"copy": 0.5, "attention": 0.3, "other": 0.2}
    classes = [{"class": name, "share": share, "ms": 3 * share, "calls": 1.0} for name, share in shares.items()]
    times = {"step_ms": 4.0, "busy_ms": 3.0, "collective_ms": 0.0}
    summary = {"on_gpu": True, "classes": classes, "kernels": [], **times}
    kernels.write(folder, kernels.Profile(asked_steps=2, num_steps=2, summaries={"0": summary}))
    table = run_table("a", folder, Result(status="finished"))
    assert list(table.columns[1].cells)[-3:] == [
        "copy 50 %, attention 30 %, other 20 %; none for 25 % of a step", "runs/a/profile_kernels.csv", "runs/a",
    ]  # fmt: skip
    note = "no step was traced: too large"
    kernels.write(folder, kernels.Profile(asked_steps=2, num_steps=0, notes=[note]))
    assert note in list(run_table("a", folder, Result(status="finished")).columns[1].cells)


def test_the_best_value_of_each_metric_stands_beside_its_last_one_where_they_differ() -> None:
    best = {"eval/best_accuracy": 0.9722, "eval/best_loss": 0.09, "eval/best_recall": 0.5}
    last = {"eval/accuracy": 0.97222, "eval/loss": 0.11, "eval/undeclared": 1.0}
    row = dict(run_rows(Result("finished", metrics=best | last)))["best"]
    assert row == "accuracy 0.9722, loss 0.09 (last 0.11), recall 0.5"  # Results of older versions have no last ones.


def test_what_of_the_limit_was_not_measured_is_told_below_it() -> None:
    why = {"words": "not known (80 % of the time)", "missing": ["no ceilings were measured", "steps were not timed"]}
    rows = run_rows(Result("finished", bottleneck=why))
    place = rows.index(("limited by", why["words"]))
    assert rows[place + 1 : place + 3] == [("not measured", words) for words in why["missing"]]


def test_the_share_of_evaluation_is_the_one_that_the_limit_names() -> None:
    metrics = {"time/eval_sec": 0.21, "time/train_sec": 0.74}  # of a clock of a second: what is between counts, too
    why = {"words": "not known (74 % of the time), then evaluation (21 %)", "shares": {"evaluation": 0.21}}
    assert ("evaluation", "21 % of the time") in run_rows(Result("finished", metrics=metrics, bottleneck=why))
    assert ("evaluation", "22 % of the time") in run_rows(Result("finished", metrics=metrics))


def test_the_time_is_told_as_a_number_of_evaluations_and_their_interval() -> None:
    metrics = {"time/to_accuracy_sec": 8.28, "epochs/to_accuracy": 6.0, "evaluations/to_accuracy": 6.0}
    assert ("evaluations", "6") in run_rows(Result("finished", metrics=metrics))
    metrics["time/evaluation_interval_sec"] = 1.25  # the last one, as in a report; the first has the warm-up, too
    assert ("evaluations", "6, 1.25 s between the last two") in run_rows(Result("finished", metrics=metrics))
    assert ("evaluations", "1") in run_rows(Result("finished", metrics=metrics | {"evaluations/to_accuracy": 1.0}))
    del metrics["evaluations/to_accuracy"]  # a run of an older version
    assert "evaluations" not in dict(run_rows(Result("finished", metrics=metrics)))


def test_a_failed_run_shows_its_last_words_and_where_the_others_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / run_folder.WORKER_LOG).write_text("x")
    run_folder.write_config(tmp_path, composed(["model=program", "program.command=a", "gpus=0"]))
    failure = Failure("error", "the program ended with exit code 3", "".join(f"line {n}\n" for n in range(30)))
    table = run_table("a", tmp_path, Result("failed", failure=failure))
    labels, cells = (list(column.cells) for column in table.columns)
    rows = dict(zip(labels, cells, strict=True))
    assert str(rows["its last words"]).splitlines() == [f"line {n}" for n in range(20, 30)]
    assert rows["its output"] == "worker.log"


def test_a_long_start_is_told_by_its_parts_and_a_short_one_is_not() -> None:
    metrics = {
        "time/init_sec": 61.0, "time/init_import_sec": 12.0, "time/init_model_sec": 0.2, "time/init_rest_sec": 3.8,
        "time/compile_sec": 45.0, "time/compile_trace_sec": 20.0, "time/compile_warmup_sec": 25.0,
    }  # fmt: skip
    rows = run_rows(Result("finished", metrics=metrics))
    place = [label for label, _ in rows].index("before the clock")
    assert rows[place + 1] == ("", "warming up 25.0 s, tracing 20.0 s, importing 12.0 s, the rest 3.8 s")
    metrics = {key: sec for key, sec in metrics.items() if not key.startswith("time/compile_")}
    rows = run_rows(Result("finished", metrics=metrics | {"time/compile_sec": 45.0}))
    assert rows[place + 1] == ("", "compiling and warming up 45.0 s, importing 12.0 s, the rest 3.8 s")
    sums = {"time/init_sec": 61.0, "time/compile_sec": 45.0}  # an earlier version's run
    for short in (metrics | {"time/init_sec": 29.0}, sums):
        assert "importing" not in str(run_rows(Result("finished", metrics=short)))
