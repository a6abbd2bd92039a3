"""The studies of conf/study, each cut down to two cores, from its command to its report."""

from __future__ import annotations

import html
import json
import re
import shlex
from typing import Any

import pytest

from tests.support.commands import Launched, launch
from tests.support.composing import ROOT, composed, jobs, study
from tracking.__main__ import main
from tracking.jobs.plan.job import Job
from tracking.jobs.plan.ordering import with_warm_ups
from tracking.jobs.plan.sweep_cost import usd_by_job
from tracking.record import run_folder
from tracking.request import checks


def study_of(launched: Launched) -> str:
    return run_folder.read_config(launched.folders[0]).study.name


@pytest.fixture(scope="module")
def cut_down() -> dict[str, list[str]]:
    """The commands of docs/studies.md that go on two CPU cores, by study: what comes behind `launch.py`.

    Where only the report is of another kind, the training is as short as that of the precisions.
    """
    section = (ROOT / "docs/studies.md").read_text().split("On two CPU cores")[1]
    block = re.search(r"```bash\n(.*?)```", section, re.DOTALL)
    assert block
    commands = [shlex.split(line)[2:] for line in block[1].splitlines()]
    by_study = {command[1].removeprefix("+study="): command for command in commands}
    for name in ("scaling", "stacks"):
        kept = [word for word in by_study[name] if not word.startswith("target=")]
        by_study[name] = [*kept, "limit_train_batches=4", "target=0.1"]
    return by_study


# One trains on a cluster (test_cluster.py), and one on two processes; their reports are of no kind of their own.
# test_stacks.py has sweeps over stacks; the study of Fashion-MNIST differs from that of the precisions by its axes.
# The study of scaling has the report of the precisions' and a figure of its own.
FURTHER = [pytest.param(name, marks=pytest.mark.exhaustive) for name in ("fashion_mnist", "precision", "stacks")]
TRAINED = ["scaling", *FURTHER]


@pytest.fixture(scope="module", params=TRAINED)
def trained(request: pytest.FixtureRequest, cut_down: dict[str, list[str]], tmp_path_factory: Any) -> Launched:
    """A study as docs/studies.md cuts it down, from its command to its end; without a server, to save time."""
    launched = launch(tmp_path_factory.mktemp(request.param), *cut_down[request.param], "tracking.offline=true")
    assert launched.code == 0, launched.output
    return launched


@pytest.mark.slow
def test_a_study_trains_its_jobs_and_costs_what_they_took(trained: Launched, cut_down: dict[str, list[str]]) -> None:
    name = study_of(trained)
    asked = [checks.check_run(composed(overrides), []) for overrides in jobs(cut_down[name][1:])]
    expected = sorted(job.config.config_hash() for job in with_warm_ups([Job(config, []) for config in asked], True))
    assert sorted(run_folder.read_config(folder).config_hash() for folder in trained.folders) == expected
    results = [json.loads((folder / "result.json").read_text()) for folder in trained.folders]
    assert {result["status"] for result in results} == {"finished"}
    assert all(result["metrics"]["target_reached"] for result in results)  # Otherwise there are no times to compare.
    costs = usd_by_job(trained.folders[0].parent)
    if name == "fashion_mnist":
        total = sum(costs.values())
        assert f"cost of the sweep: {total:,.2f} USD" in trained.output
        summary = json.loads((trained.folders[0].parent / "result.json").read_text())
        assert summary["metrics"]["cost/sweep_usd"] == pytest.approx(total)
        assert total > 0
    else:
        assert not costs
        assert "cost of the sweep" not in trained.output


@pytest.mark.slow
def test_a_study_ends_with_its_report_by_its_axes(trained: Launched) -> None:
    about, folder = study(study_of(trained)), trained.folders[0].parent
    content = json.loads((folder / "report.json").read_text())
    assert content["by"] == about["by"]
    settings = {tuple(run["setting"].items()) for run in content["runs"]}
    assert len(settings) == (1 if about["name"] == "stacks" else 2)  # there is one stack
    assert len(content["runs"]) == 2
    assert [run["why"] for run in content["excluded"]] == ["not counted: warm-up"] * (about["name"] == "stacks")
    names = {path.name for path in folder.iterdir()}
    assert {"report.html", "report.md", "report.csv", "report-1-accuracy.png", "summary.csv"} <= names
    assert ("report-1-scaling.png" in names) == (about["name"] == "scaling")
    assert ("report-1-cost.png" in names) == (about["name"] == "fashion_mnist")
    for name in ("report.md", "report.html"):
        text = html.unescape((folder / name).read_text())
        assert content["headlines"]
        assert all(headline in text for headline in content["headlines"])
        assert ("p3.2xlarge (V100)" in text) == (about["name"] == "fashion_mnist")  # what is published of VGG


@pytest.mark.slow
def test_the_command_that_a_study_ends_with_makes_its_report_again_and_checks_it(
    trained: Launched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    about = study(study_of(trained))
    line = next(line for line in trained.output.splitlines() if line.startswith("report again: "))
    command = shlex.split(line.partition("-m tracking ")[2])
    reference = ["--reference", ",".join(about["reference"])] if "reference" in about else []
    by = ["--by", ",".join(about["by"])]
    assert command[2:] == [*by, *reference, "--from-folders", "--runs-dir", "runs"]
    monkeypatch.chdir(trained.cwd)
    assert main([*command, "--check"]) == 0
    printed = capsys.readouterr().out
    number = 3 if about["name"] == "stacks" else 2  # with a warm-up
    assert f"from {number} journals in runs: all agree" in printed
    before = json.loads((trained.folders[0].parent / "report.json").read_text())
    (again,) = trained.cwd.glob("reports/*/report.json")
    assert json.loads(again.read_text())["tables"] == before["tables"]


@pytest.mark.slow
def test_a_job_without_a_result_costs_what_it_took_until_its_last_words(trained: Launched) -> None:
    if study_of(trained) != "fashion_mnist":
        return  # the others have no price
    folder = trained.folders[0]
    before, journal = usd_by_job(folder.parent)[folder], folder / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]))
    after = usd_by_job(folder.parent)[folder]
    journal.write_bytes(b"".join(lines))
    assert 0 < after < before
