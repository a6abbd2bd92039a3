"""Sweeps: every job isolated, none false, none lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

import tracking.__main__
from tests.support.commands import TINY, Launched, begin, collect, events, launch
from tests.support.composing import composed
from tests.support.folders import wait_for
from tracking.jobs.plan import sweep, sweep_summary
from tracking.jobs.plan.job import Job
from tracking.record import Failure, Result, journal, run_folder
from tracking.store.mirror.mirror import Mirror

FAULTS = ("none", "sigkill", "oom", "diverge", "exit")
CAUSES = {
    "none": None, "sigkill": "signal:9", "oom": "oom", "diverge": "nan", "exit": "error",
}  # fmt: skip


def by(launched: Launched, key: str) -> dict[str, Path]:
    """The jobs' folders by the value of a hyperparameter or option."""
    folders = {}
    for folder in launched.folders:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        folders[(config | config["model"]["hparams"])[key]] = folder
    return folders


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """A sweep in which all jobs but the first fail, each in its own way."""
    cwd = tmp_path_factory.mktemp("faulty")
    jobs = (f"model.hparams.fault={','.join(FAULTS)}",)
    two = ("cpu_processes=2", "overlap_grad_reduce=false")
    return launch(cwd, "-m", *TINY, *jobs, *two, "tracking.system_metrics_interval_sec=0")


@pytest.mark.slow
def test_the_sweep_goes_on_and_fails_as_a_whole(faulty: Launched) -> None:
    assert faulty.code == 1, faulty.output
    assert len(faulty.folders) == len(FAULTS)
    assert f"{len(FAULTS)} of {len(FAULTS)} jobs to run" in faulty.output


@pytest.mark.slow
def test_first_and_later_jobs_have_the_same_environment(faulty: Launched) -> None:
    """The first job takes its fingerprint before its imports, which set variables; later ones are forked after them."""
    facts = [json.loads((folder / run_folder.FINGERPRINT).read_text()) for folder in faulty.folders]
    assert all(each["environment"] == facts[0]["environment"] for each in facts)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_every_job_is_reported_with_its_cause(faulty: Launched, fault: str) -> None:
    folder = by(faulty, "fault")[fault]
    result = json.loads((folder / "result.json").read_text())
    run_id = Mirror(folder).run_id
    assert run_id
    run = MlflowClient(f"sqlite:///{faulty.cwd / 'mlflow.db'}").get_run(run_id)
    cause = CAUSES[fault]
    if cause is None:
        assert (result["status"], run.info.status) == ("finished", "FINISHED")
        assert result["metrics"]["world_size"] == 2
        assert run.data.tags["overlap_grad_reduce"] == "false"  # It was asked for.
        return
    assert result["failure"]["kind"] == cause
    assert run.data.tags["failure"] == cause
    assert run.info.status == ("KILLED" if cause.startswith("signal") else "FAILED")
    assert cause in faulty.output
    if fault in ("sigkill", "exit"):  # nobody could write a traceback
        last_words = run.data.tags["mlflow.note.content"].split("```")[1].strip()
        assert last_words[-100:] in (folder / "worker.log").read_text()
    if fault == "diverge":
        assert "at step 5 (rank 1)" in result["failure"]["message"]


@pytest.mark.slow
def test_jobs_are_children_and_the_parent_holds_the_summary(faulty: Launched) -> None:
    (parent,) = (path.parent for path in faulty.cwd.rglob("sweep.json") if "mlartifacts" not in path.parts)
    mirrored = Mirror(parent)
    assert mirrored.run_id
    client = MlflowClient(f"sqlite:///{faulty.cwd / 'mlflow.db'}")
    children = client.search_runs(
        [mirrored.experiment_id], f"tags.`mlflow.parentRunId` = '{mirrored.run_id}'", max_results=100
    )
    assert {run.info.run_id for run in children} == {Mirror(folder).run_id for folder in faulty.folders}
    parent_run = client.get_run(mirrored.run_id)
    assert parent_run.info.status == "FAILED"
    assert parent_run.data.metrics["num_finished"] == 1
    assert parent_run.info.end_time >= max(run.info.end_time for run in children)
    names = {file.path for file in client.list_artifacts(mirrored.run_id)}
    assert {"sweep.json", "summary.csv", "summary.md"} <= names
    link = next(line for line in faulty.output.splitlines() if "compare-runs" in line)
    for run in children:
        assert run.info.run_id in link


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Launched, Launched]:
    """A sweep of two seeds, and the same sweep resumed. The first seed fails; then its cause is mended."""
    cwd = tmp_path_factory.mktemp("repeated")
    broken = ("model.hparams.fault=error", f"model.hparams.marker={cwd / 'mended'}")
    process = begin(cwd, "-m", *TINY, *broken, "seed=1,2", "tracking.offline=true")
    wait_for(lambda: process.poll() is not None or list(cwd.rglob("*-seed1/result.json")))
    (cwd / "mended").touch()
    swept = collect(process, cwd)
    return swept, launch(cwd, f"sweep.resume={swept.folders[0].parent.name}", "tracking.offline=true")


@pytest.mark.slow
def test_resume_runs_only_what_has_not_finished(repeated: tuple[Launched, Launched]) -> None:
    swept, resumed = repeated
    assert swept.code == 1, swept.output
    assert resumed.code == 0, resumed.output
    assert "1 of 2 jobs to run" in resumed.output
    failed, finished = (by(swept, "seed")[seed] for seed in (1, 2))
    result = json.loads((failed / "result.json").read_text())
    assert (result["status"], result["failure"]["kind"]) == ("failed", "error")
    assert "something of the user's own broke" in result["failure"]["traceback"]
    [new] = set(resumed.folders) - set(swept.folders)
    written = [(folder / "result.json").stat().st_mtime for folder in (failed, finished, new)]
    assert written == sorted(written), "the one that had finished was left alone"
    again = launch(swept.cwd, f"sweep.resume={finished.parent.name}", "tracking.offline=true")
    assert again.code == 0, again.output
    assert "0 of 2 jobs to run" in again.output


@pytest.mark.slow
def test_repeats_get_mean_and_standard_error(repeated: tuple[Launched, Launched]) -> None:
    _, resumed = repeated
    results = [json.loads((folder / "result.json").read_text()) for folder in resumed.folders]
    rates = [result["metrics"]["throughput/samples_per_sec"] for result in results if result["status"] == "finished"]
    assert len(rates) == 2
    line = next(line for line in resumed.output.splitlines() if "2 of 2" in line and "│" in line)
    assert f"{sum(rates) / 2:,.0f} ± {abs(rates[0] - rates[1]) / 2:,.0f}" in line


@pytest.fixture(scope="module")
def scaling(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    cwd = tmp_path_factory.mktemp("scaling")
    settings = ("cpu_processes=1,3", "max_epochs=2", "stop_at_target=false", "model.optimizer.lr=1e-30")
    return launch(cwd, "-m", *TINY, *settings, "tracking.offline=true")


@pytest.mark.slow
def test_every_job_trains_on_as_many_processes_as_asked_and_all_of_the_data_once(scaling: Launched) -> None:
    assert scaling.code == 0, scaling.output
    folders = by(scaling, "cpu_processes")
    assert sorted(folders) == [1, 3]
    for processes, folder in folders.items():
        result = json.loads((folder / "result.json").read_text())
        assert result["metrics"]["world_size"] == processes
        trained = [event.values["samples"] for event in events(folder, "epoch_stop")]
        assert trained == [1150, 1150], "80 % of scikit-learn's digits that are not held out for the test"


@pytest.mark.slow
def test_how_gradients_were_exchanged_is_a_tag_where_there_are_several_processes(scaling: Launched) -> None:
    for processes, folder in by(scaling, "cpu_processes").items():
        tags = [record.values for record, _ in journal.read(folder / run_folder.JOURNAL) if record.kind == "tags"]
        said = [values["overlap_grad_reduce"] for values in tags if "overlap_grad_reduce" in values]
        assert said == ([] if processes == 1 else ["true"])


@pytest.mark.slow
def test_evaluation_over_processes_gives_exactly_the_metric_of_one(scaling: Launched) -> None:
    results = [json.loads((folder / "result.json").read_text()) for folder in scaling.folders]
    # The weights stay as they were made (see the learning rate), so both evaluate the same model. 3 divides neither the
    # 359 test samples nor those that it trains on.
    assert len({result["metrics"]["test/accuracy"] for result in results}) == 1
    assert len({row["metrics"]["accuracy"] for result in results for row in result["evaluations"]}) == 1
    right = results[0]["metrics"]["test/accuracy"] * 359
    assert right == pytest.approx(round(right), abs=1e-9)


def test_a_summarys_rows_have_their_values_under_their_headings() -> None:
    """Whichever key changes the slowest, and so comes first."""
    overrides = [["seed=1", "batch_size=8"], ["seed=1", "batch_size=16"], ["seed=2", "batch_size=8"]]
    jobs = [Job(composed([*given, "gpus=0"]), given) for given in overrides]
    assert sweep_summary.headings(jobs)[:2] == ["seed", "batch_size"]
    assert [sweep_summary.cells(row)[:2] for row in sweep_summary.summary(jobs)][3:] == [["all", "8"], ["all", "16"]]


def test_jobs_that_did_not_get_there_count_against_the_mean_of_their_setting(tmp_path: Path) -> None:
    (tmp_path / run_folder.JOURNAL).write_text(
        '{"kind": "metrics", "time_ms": 1, "clock_sec": 1.0, "values": {"time/censored_sec": 30.0, "epoch": 7}}\n'
    )
    reached = {"time/to_accuracy_sec": 10.0, "epochs/to_accuracy": 4.0, "target_reached": 1.0, "world_size": 1.0}
    good = Result("finished", metrics=reached)
    missed = Result("finished", metrics={"time/censored_sec": 20.0, "target_reached": 0.0, "world_size": 1.0})
    failed = [Result("failed", failure=Failure(kind, "")) for kind in ("timeout", "oom")]
    jobs = []
    for seed, result in enumerate([good, missed, *failed], 1):
        words = [f"seed={seed}", "gpus=0"]
        jobs.append(Job(composed(words), words, folder=tmp_path, result=result))
    row = dict(zip(sweep_summary.headings(jobs), sweep_summary.cells(sweep_summary.summary(jobs)[-1]), strict=True))
    assert (row["n"], row["status"]) == ("2 of 4", "reached by 1 of 2, 1 stopped by a time limit at 30 s")
    assert row["time to accuracy (s)"] == "≥ 20.0 ± 5.8"
    assert row["epochs"] == "≥ 6.0 ± 1.0"
    assert row["world size"] == "1"


def test_names_tell_what_no_name_tells_anyway_and_what_jobs_share_is_left_out() -> None:
    common = ["gpus=0", "model.optimizer.lr=0.1", "log_every_n_steps=5"]
    overrides = [["seed=1", "batch_size=8"], ["seed=2", "batch_size=8"], ["seed=1", "batch_size=16"]]
    jobs = [Job(composed([*given, *common]), given) for given in overrides]
    sweep.name_jobs(jobs)
    start = "vgg-digits-fp32-1cpu-seed"
    assert [job.name for job in jobs] == [
        f"{start}1-batch_size=8", f"{start}2-batch_size=8", f"{start}1-batch_size=16"
    ]  # fmt: skip
    jobs = [Job(composed([*common, f"dataset.path={path}"]), []) for path in ("/data/a b", "/data/" + 100 * "c")]
    sweep.name_jobs(jobs)
    assert jobs[0].name == f"{start}{jobs[0].config.seed}-path=_data_a_b"
    assert len(jobs[1].name) < 100
    jobs = [Job(composed([*common, f"dataset.path='{path}'"]), []) for path in ("/data", "/" + 100 * "𠀀")]
    sweep.name_jobs(jobs)
    assert jobs[1].name.isascii(), "a folder's name has 255 bytes at most"
    sweep.name_jobs(jobs[:1])
    assert jobs[0].name == f"{start}{jobs[0].config.seed}"


def test_of_commands_names_tell_the_words_that_differ() -> None:
    common = ["gpus=0"]
    command = "/opt/torch/bin/python my_long_script_of_training.py --size full --epochs 4 --compile"
    commands = [f"program.command='{command} {compiled} --seed 1'" for compiled in ("true", "false")]
    jobs = [Job(composed([*common, "model=program", word]), [word]) for word in commands]
    sweep.name_jobs(jobs)
    assert [job.name.partition("command=")[2] for job in jobs] == ["compile_true", "compile_false"]
    words = [f"program.command='{words}'" for words in ("python a/b.py", "python a/b.py --fast", "python c.py")]
    jobs = [Job(composed([*common, "model=program", word]), [word]) for word in words]
    sweep.name_jobs(jobs[:2])
    assert [job.name.partition("command=")[2] for job in jobs[:2]] == ["b.py", "b.py_fast"]
    sweep.name_jobs(jobs)
    assert [job.name.partition("command=")[2] for job in jobs] == ["b.py", "b.py_fast", "c.py"]


@pytest.mark.slow
def test_the_report_on_real_runs_follows_from_their_journals(scaling: Launched, tmp_path: Path) -> None:
    assert (scaling.folders[0].parent / "report.html").exists()
    command = ["report", scaling.folders[0].parent.name, "--from-folders", "--with-missed", "--check"]
    assert tracking.__main__.main([*command, "--runs-dir", str(scaling.cwd), "--out", str(tmp_path)]) == 0
    figures = json.loads((tmp_path / "report.json").read_text())["figures"]
    assert {"samples/s", "minutes an epoch", "efficiency of the rate"} <= {figure["figure"] for figure in figures}
