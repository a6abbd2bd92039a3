"""The table at the end of a sweep: what is shown of jobs that did not reach their target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conf.schema import PROGRAM
from tests.support import studied
from tests.support.composing import composed
from tracking.jobs.plan import sweep, sweep_summary
from tracking.jobs.plan.job import Job
from tracking.record import Failure, Journal, Result, run_folder

REACHED = {
    "time/to_accuracy_sec": 10.0, "epochs/to_accuracy": 2.0, "epochs/trained": 2.0, "target_reached": 1.0,
    "eval/best_accuracy": 0.95, "throughput/samples_per_sec": 100.0, "world_size": 1.0,
}  # fmt: skip
MISSED = {
    "epochs/trained": 3.0, "target_reached": 0.0, "eval/best_accuracy": 0.85, "throughput/samples_per_sec": 102.0,
    "throughput/model_flops_utilization": 0.321, "world_size": 1.0,
}  # fmt: skip


def shown(*measured: dict[str, float] | None) -> list[dict[str, str]]:
    """The rows of a sweep of jobs that differ in their seed; None is a job that failed."""
    jobs = jobs_of(*measured)
    rows = map(sweep_summary.cells, sweep_summary.summary(jobs))
    return [dict(zip(sweep_summary.headings(jobs), row, strict=True)) for row in rows]


def jobs_of(*measured: dict[str, float] | None) -> list[Job]:
    jobs = []
    for seed, metrics in enumerate(measured, 1):
        result = Result("finished", metrics=metrics or {}, targets={"accuracy": 0.9})
        if metrics is None:
            result = Result("failed", failure=Failure("oom", "too large"))
        jobs.append(Job(studied.config(seed=seed), [], result=result))
    return jobs


def test_a_job_that_missed_its_target_has_its_rate_its_epochs_and_its_best_value() -> None:
    reached, missed, failed, mean = shown(REACHED, MISSED, None)
    assert (missed["status"], missed["time to accuracy (s)"]) == ("target missed", "")
    assert (missed["epochs trained"], missed["best accuracy"], missed["samples/s"]) == ("3", "0.85", "102")
    assert (missed["FLOPs utilisation (%)"], reached["FLOPs utilisation (%)"]) == ("32.1", "")
    assert (reached["epochs"], reached["best accuracy"]) == ("2", "0.95")
    assert (failed["best accuracy"], failed["samples/s"]) == ("", "")
    assert mean["n"] == "2 of 3"
    assert mean["status"].startswith("reached by 1 of 2")
    assert mean["time to accuracy (s)"] == "≥ 5.0 ± 5.0"  # nothing says by when the other had not got there
    assert (mean["best accuracy"], mean["samples/s"]) == ("0.900 ± 0.050", "101.0 ± 1.0")


def test_only_the_best_values_of_targets_have_a_column() -> None:
    (row,) = shown(REACHED | {"eval/best_loss": 0.1})
    assert "best accuracy" in row
    assert "best loss" not in row


def test_a_mean_has_as_many_digits_as_its_error_whatever_the_unit() -> None:
    times = [REACHED | {"time/to_accuracy_sec": sec} for sec in (0.06, 0.0684)]
    first, _, mean = shown(*times)
    assert (first["time to accuracy (s)"], mean["time to accuracy (s)"]) == ("0.06", "0.0642 ± 0.0042")
    *_, mean = shown(*(MISSED | {"throughput/model_flops_utilization": share} for share in (0.32, 0.3214)))
    assert mean["FLOPs utilisation (%)"] == "32.070 ± 0.070"


@pytest.mark.parametrize(("better", "mean"), [("higher", "≤ 0.8 ± 0"), ("lower", "≥ 0.8 ± 0")])
def test_a_run_whose_metric_was_never_a_number_counts_against_its_setting(
    tmp_path: Path, better: str, mean: str
) -> None:
    jobs = jobs_of(*[{"eval/best_score": 0.8}] * 2, {})
    for job in jobs:
        job.result.targets, job.result.directions = {}, {"score": better}  # type: ignore[union-attr]
    jobs[-1].folder = run_folder.create(tmp_path, "run")
    log = Journal(jobs[-1].folder / run_folder.JOURNAL)
    log.metrics({"eval/score": float("nan")}, step=1)
    log.close()
    *_, row = map(sweep_summary.cells, sweep_summary.summary(jobs))
    assert dict(zip(sweep_summary.headings(jobs), row, strict=True))["best score"] == mean
    assert f"{mean[0]}: at " in str(sweep_summary.table("name", jobs).caption)


def test_a_world_size_that_all_runs_share_has_no_error() -> None:
    *_, mean = shown(*[REACHED | {"world_size": 2.0}] * 2)
    assert (mean["world size"], mean["epochs"]) == ("2", "2 ± 0")


def test_a_legend_explains_what_the_table_shows_and_nothing_else() -> None:
    share = "(%): the 95 % interval of the share of runs that reach the target."
    error = "±: standard error of the mean over seeds."
    at_least = "≥: at least, since runs did not reach the target or became NaN."
    legends = [sweep_summary.table("20261125", jobs_of(*measured)).caption
               for measured in ([REACHED], [REACHED, REACHED], [REACHED, MISSED], [REACHED] * 5)]  # fmt: skip
    assert legends == ["", error, f"{error} {at_least}", f"{share} {error}"]


def test_a_warm_up_is_shown_and_in_no_mean() -> None:
    jobs = [Job(studied.config(seed=1, warm_up=True), [], result=Result("finished", metrics=MISSED))]
    jobs += [Job(studied.config(seed=seed), [], result=Result("finished", metrics=REACHED)) for seed in (1, 2)]
    jobs[0].result.targets = {"accuracy": 0.9}  # type: ignore[union-attr]
    rows = [dict(zip(sweep_summary.headings(jobs), sweep_summary.cells(row), strict=True))
            for row in sweep_summary.summary(jobs)]  # fmt: skip
    assert [row["status"] for row in rows[:2]] == ["target missed, a warm-up, not counted", "finished"]
    assert (rows[-1]["n"], rows[-1]["time to accuracy (s)"]) == ("2 of 2", "10.00 ± 0.00")
    assert "warm_up" not in rows[0]


def test_a_resumed_run_is_shown_and_in_no_mean() -> None:
    jobs = jobs_of(REACHED, REACHED, MISSED)
    jobs[-1].result.resumes = 1  # type: ignore[union-attr]
    mean = sweep_summary.pooled(jobs, ["throughput/samples_per_sec"])
    assert (mean["n"], mean["status"]) == ("2 of 3", "reached by 2 of 2, 1 resumed, not counted")
    assert mean["values"]["throughput/samples_per_sec"].mean == 100.0


def test_evaluations_have_a_column_where_they_are_no_epochs() -> None:
    (row,) = shown(REACHED | {"evaluations/to_accuracy": 4.0})
    assert (row["epochs"], row["evaluations"]) == ("2", "4")
    assert "evaluations" not in shown(REACHED | {"evaluations/to_accuracy": 2.0})[0]


def test_a_job_that_was_stopped_from_outside_is_named_beside_the_share() -> None:
    jobs = jobs_of(REACHED, MISSED, None)
    jobs += [Job(studied.config(seed=9), [], result=Result("failed", failure=Failure("timeout", "")))]
    rows = [dict(zip(sweep_summary.headings(jobs), sweep_summary.cells(row), strict=True))
            for row in sweep_summary.summary(jobs)]  # fmt: skip
    assert [row["status"] for row in rows] == [
        "finished", "target missed", "failed: oom", "stopped: timeout",
        "reached by 1 of 2, 1 stopped by a time limit",
    ]  # fmt: skip


def test_where_all_reached_it_there_is_one_column_of_epochs() -> None:
    (row,) = shown(REACHED)
    assert "epochs trained" not in row
    assert "FLOPs utilisation (%)" not in row


def jobs_given(*overrides: list[str]) -> list[Job]:
    return [Job(composed([*words, "gpus=0"]), words) for words in overrides]


def test_what_differs_only_because_recipes_do_is_no_axis_and_stands_in_no_name() -> None:
    asked = [["dataset=shapes", f"model={model}", f"seed={seed}"] for model in ("ssd", "resnet50") for seed in (1, 2)]
    jobs = jobs_given(*asked)
    sizes = {job.config.dataset.size for job in jobs}
    assert len(sizes) == 2, "the recipes of these models draw different numbers of pictures"
    assert sweep_summary.grid(jobs) == {"seed": ["1", "2"], "model": ["ssd", "resnet50"]}
    sweep.name_jobs(jobs)
    assert [job.name for job in jobs] == [
        "ssd-shapes-fp32-1cpu-seed1", "ssd-shapes-fp32-1cpu-seed2",
        "resnet50-shapes-fp32-1cpu-seed1", "resnet50-shapes-fp32-1cpu-seed2",
    ]  # fmt: skip


def test_what_was_asked_for_is_an_axis_though_another_tells_the_jobs_apart() -> None:
    jobs = jobs_given(["model=ssd", "dataset=shapes", "dataset.size=500"], ["model=resnet50", "dataset=shapes"])
    assert [*sweep_summary.grid(jobs)] == ["model", "dataset.size"]
    jobs = jobs_given(["+model.hparams={width: 16, epochs: 1}"], ["+model.hparams={width: 32, epochs: 2}"])
    assert {"model.hparams.width", "model.hparams.epochs"} <= {*sweep_summary.grid(jobs)}


def test_what_tells_jobs_apart_is_an_axis_though_nobody_asked_for_it() -> None:
    """As of jobs that were added to a sweep after a default had changed."""
    jobs = [Job(studied.config(seed=1), []), Job(studied.config(seed=1, batch_size=64), [])]
    assert sweep_summary.grid(jobs) == {"batch_size": ["None", "64"]}


def program(folder: Path, **result: Any) -> Job:
    config = studied.config(seed=1)
    config.model.workload = PROGRAM
    return Job(config, [], folder=folder, result=Result(**result))


def test_the_line_of_a_failed_program_has_its_last_words_and_where_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / run_folder.WORKER_LOG).write_text("epoch 1\nno such file: data.bin\n")
    failed = program(tmp_path, status="failed", failure=Failure("error", "the program ended with exit code 3"))
    assert sweep_summary.outcome(failed) == (
        "failed: error: the program ended with exit code 3; it last printed: no such file: data.bin; see worker.log"
    )


def test_a_run_that_no_mean_counts_says_why_and_is_in_none(tmp_path: Path) -> None:
    jobs = []
    for seed, why in ((1, ""), (2, "world size 1, not 2 as requested")):
        folder = tmp_path / str(seed)
        folder.mkdir()
        log = Journal(folder / run_folder.JOURNAL)
        log.tags({"timetrial.uncounted": why} if why else {"a": "b"})
        log.close()
        jobs.append(program(folder, status="finished", metrics={**REACHED, "throughput/samples_per_sec": 100.0 * seed}))
        jobs[-1].config.seed = seed
    assert sweep_summary.outcome(jobs[1]).endswith("; not counted: world size 1, not 2 as requested")
    assert "not counted" not in sweep_summary.outcome(jobs[0])
    rows = sweep_summary.summary(jobs)
    assert [row["status"] for row in rows[:2]] == ["finished", "finished, not counted"]
    assert rows[2]["n"] == "1 of 2"
    assert rows[2]["values"]["throughput/samples_per_sec"].mean == 100
