"""`report --check`: which runs and labels it compares, and what it says of a difference."""

from __future__ import annotations

import copy
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.damage import change
from tests.support.studied import SWEEP, config, make_run, make_sweep, write_sweep
from tracking.__main__ import main
from tracking.analysis.audit.arithmetic import meets
from tracking.analysis.audit.audit import audit
from tracking.analysis.published import comparison
from tracking.analysis.report import report
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.jobs.plan import sweep_report

LATE = r'("clock_sec": )[\d.]+(, "key": "eval_accuracy")'  # an evaluation's time in a journal


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("audit")
    write_sweep(root / "runs", "sqlite:///none.db")
    return root


@pytest.fixture(scope="module")
def content(root: Path) -> dict[str, Any]:
    """A report on one and two GPUs, not to be changed."""
    return plain(root, ["gpus"])


def plain(root: Path, by: list[str], metric: str | None = None) -> dict[str, Any]:
    """A report with every kind of table, as JSON."""
    store = FolderRuns([root / "runs"])
    made = report.make(store, [SWEEP], store.find([SWEEP]), by, metric)
    comparison.add_published(made, ["fashion_mnist"])
    return made.plain()


@pytest.mark.parametrize("metric", ["time/train_sec", "cost/usd"])
def test_figures_of_the_whole_run_fall_on_evaluations_for_the_check_too(root: Path, metric: str) -> None:
    assert audit(plain(root, ["gpus"], metric), [root]).differences == []


def test_a_missing_row_a_blank_and_an_unknown_table_are_named(root: Path, content: dict[str, Any]) -> None:
    for table in content["tables"]:
        if table["kind"] in ("settings", "pairs", "excluded"):
            other = copy.deepcopy(content)
            own = next(candidate for candidate in other["tables"] if candidate["kind"] == table["kind"])
            del own["rows"][0]
            assert audit(other, [root]).differences, table["kind"]
    blank = copy.deepcopy(content)
    blank["tables"][0]["rows"][0][content["tables"][0]["columns"].index("samples/s")] = ""
    (sentence,) = audit(blank, [root]).differences
    assert sentence.startswith("tables: settings, vgg on digits to accuracy 0.9: 1: samples/s: the report has ''")
    other = copy.deepcopy(content)
    other["tables"][0]["kind"] = "new"
    assert any("cannot be recomputed" in sentence for sentence in audit(other, [root]).differences)


def test_a_run_that_was_left_out_of_the_report_is_named(root: Path, tmp_path: Path) -> None:
    """It stands in the sweep's folder, and was not there when the report was made."""
    shutil.copytree(root / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs" / SWEEP / "vgg-digits-fp32-1gpu-seed5")
    (sentence,) = audit(plain(tmp_path, ["gpus"]), [root]).differences
    assert sentence == f"vgg-digits-fp32-1gpu-seed5: missing in the report, but in {SWEEP}"


def test_a_run_of_another_sweep_is_named(root: Path, content: dict[str, Any]) -> None:
    names = " ".join(audit(content | {"selectors": ["vgg-digits-fp32-1gpu-seed5"]}, [root]).differences)
    assert "vgg-digits-fp32-1gpu-seed1: in the report, but not in vgg-digits-fp32-1gpu-seed5" in names
    assert "seed5 is in the report" not in names


@pytest.mark.parametrize(
    "selector", [SWEEP, f"runs/{SWEEP}", f"sweep {SWEEP}", "studies", "elsewhere/runs", "."], ids=str
)
def test_a_sweep_an_experiment_and_a_folder_name_their_runs(root: Path, content: dict[str, Any], selector: str) -> None:
    assert audit(content | {"selectors": [selector]}, [root]).differences == []


def test_a_selector_that_names_no_folder_is_a_difference(root: Path, content: dict[str, Any]) -> None:
    (sentence,) = audit(content | {"selectors": ["nothing"]}, [root]).differences
    assert sentence == f"nothing: no such run folder in {root}"


@pytest.mark.parametrize("key", ["target_value", "gpus", "model"])
def test_params_that_were_changed_on_the_server_are_seen(root: Path, tmp_path: Path, key: str) -> None:
    """The report was made of them, and the run folders have others."""
    shutil.copytree(root / "runs", tmp_path / "runs")
    for path in (tmp_path / "runs" / SWEEP).glob("*/journal.jsonl"):
        path.write_text(re.sub(rf'"{key}": "?[^,"]+"?', f'"{key}": "0.5"', path.read_text(), count=1))
    assert audit(plain(tmp_path, ["gpus"]), [root]).differences
    assert audit(plain(tmp_path, ["gpus"]), [tmp_path]).differences != [] or key == "gpus"  # The config says another.


def test_a_workload_that_the_config_does_not_have_is_named(root: Path, tmp_path: Path, content: dict[str, Any]) -> None:
    shutil.copytree(root / "runs", tmp_path / "runs")
    path = tmp_path / "runs" / SWEEP / "vgg-digits-fp32-1gpu-seed1" / "config.yaml"
    path.write_text(path.read_text().replace("accuracy: 0.9", "accuracy: 0.8"))
    (sentence,) = audit(content, [tmp_path]).differences
    assert sentence == "vgg-digits-fp32-1gpu-seed1: its journal has target_value=0.9, its config.yaml 0.8"


def test_runs_that_are_left_out_are_those_that_should_be(root: Path, content: dict[str, Any], tmp_path: Path) -> None:
    """Runs that shared their machine, and attempts that were repeated, are left out."""
    sweep = make_sweep(tmp_path, "20260101-000000-vgg-0002", "sqlite:///none.db", 4)
    for seed in (1, 2):
        make_run(sweep, config(seed=seed), "sqlite:///none.db", 0.1 + seed / 100)
    make_run(sweep, config(seed=3), "sqlite:///none.db", tags={"neighbours": "sweep.jobs_at_once=2; others"})
    make_run(sweep, config(seed=4), "sqlite:///none.db", failure="oom", start_ms=1)
    make_run(sweep, config(seed=4), "sqlite:///none.db", failure="nan", start_ms=2)
    make_run(sweep, config(seed=4), "sqlite:///none.db", 0.13, start_ms=3)
    for options, whys in (([], ["run again", "shared its machine"]), (["--with-neighbours"], ["run again"])):
        out = tmp_path / "out"
        command = ["report", sweep.name, "--from-folders", "--runs-dir", str(tmp_path), "--out", str(out), "--check"]
        assert main([*command, *options]) == 0
        made = json.loads((out / "report.json").read_text())
        assert sorted(run["why"] for run in made["left_out"]) == whys
        assert len(made["excluded"]) == 1
        other = made | {"left_out": [], "runs": [*made["runs"], made["left_out"][0]]}
        assert audit(other, [tmp_path]).differences


def test_the_command_checks_a_folder_later(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--runs-dir", str(root / "runs")]
    assert main(["report", SWEEP, "--from-folders", "--out", str(tmp_path), *where]) == 0
    capsys.readouterr()
    assert main(["audit", str(tmp_path), *where]) == 0
    assert "all agree. Not checked: sentences other than the answer" in capsys.readouterr().out
    (tmp_path / "report.csv").write_text((tmp_path / "report.csv").read_text().replace(",5,4.62,", ",5,4.61,"))
    assert main(["audit", str(tmp_path), *where, "--json"]) == 1
    (sentence,) = json.loads(capsys.readouterr().out)["differences"]
    assert sentence.startswith("report.csv, row ")
    assert main(["audit", str(root), *where]) == 2
    assert "report.json is missing" in capsys.readouterr().err
    (tmp_path / "report.json").write_text("{}")
    assert main(["audit", str(tmp_path), *where]) == 2


def test_the_report_of_a_sweep_is_checked_in_its_folder(root: Path, tmp_path: Path) -> None:
    """That one is written when the sweep ends, and its runs lie beside it."""
    shutil.copytree(root / "runs", tmp_path / "runs")
    folder = tmp_path / "runs" / SWEEP
    sweep_report.write(folder)
    assert main(["audit", str(folder)]) == 0
    alone = tmp_path / "alone" / "a"
    shutil.copytree(next(folder.glob("vgg*")), alone)
    change("run.json", parent=None, uid="0" * 32)(alone)
    records = (alone / "journal.jsonl").read_text().splitlines(keepends=True)
    (alone / "journal.jsonl").write_text("".join(line.replace('"sweep":', '"other":') for line in records))
    # A run without a sweep does not belong to this one.
    assert main(["audit", str(folder), "--runs-dir", str(alone.parent)]) == 0
    shutil.rmtree(folder / "vgg-digits-fp32-2gpu-seed3")
    assert main(["audit", str(folder)]) == 1


def test_the_worse_side_called_the_better_is_found(root: Path, content: dict[str, Any]) -> None:
    other = copy.deepcopy(content)
    pair = next(comparison for comparison in other["comparisons"] if comparison["better"] == {"gpus": "2"})
    assert pair["worse"] == {"gpus": "1"}
    pair["better"], pair["worse"] = pair["worse"], pair["better"]
    sentences = audit(other, [root]).differences
    assert sentences[0].startswith("comparisons: vgg on digits to accuracy 0.9: gpus=1 and gpus=2: better: gpus: the")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda text: re.sub(LATE, r"\g<1>99.0\2", text), "time to accuracy (s)"),
        (lambda text: text.replace('"samples": 128', '"samples": 130'), "samples/s"),
        (lambda text: text.replace('"key": "run_stop"', '"key": "run_stopped"'), "samples/s: n: the report has 5, the"),
        (lambda text: text.replace('"gpus": 1', '"gpus": 3'), "setting: gpus: the report has '1', the run folders '3'"),
        (lambda text: text.replace('"dataset": "digits"', '"dataset": "letters"'), "the run folders 'vgg on letters"),
    ],
    ids=["clock", "samples", "not ended", "setting", "workload"],
)  # fmt: skip
def test_a_figure_that_the_journals_do_not_have_fails_the_check(
    root: Path, tmp_path: Path, content: dict[str, Any], change: Callable[[str], str], named: str
) -> None:
    shutil.copytree(root / "runs", tmp_path / "runs")
    journal = tmp_path / "runs" / SWEEP / "vgg-digits-fp32-1gpu-seed1" / "journal.jsonl"
    assert change(journal.read_text()) != journal.read_text()
    journal.write_text(change(journal.read_text()))
    assert named in " ".join(audit(content, [tmp_path]).differences)


@pytest.mark.parametrize("seed", [11, 13, 15])
def test_a_run_that_did_not_get_there_and_is_left_out_is_found(
    root: Path, tmp_path: Path, content: dict[str, Any], seed: int
) -> None:
    """Diverged, missed, timed out: as if it had failed of something else, and as if it had gone on for longer."""
    shutil.copytree(root / "runs", tmp_path / "runs")
    folder = tmp_path / "runs" / SWEEP / f"vgg-digits-fp32-4gpu-seed{seed}"
    result, journal = folder / "result.json", folder / "journal.jsonl"
    before = result.read_text(), journal.read_text()
    result.write_text(json.dumps({"status": "failed", "failure": {"kind": "oom", "message": ""}}))
    sentences = " ".join(audit(content, [tmp_path]).differences)
    assert "gpus=4: time to accuracy (s): n: the report has 6, the run folders 5" in sentences
    result.write_text(before[0])
    longer = before[1].replace('"key": "eval_stop"', '"key": "eval_end"').replace("run_stop", "run_end")
    journal.write_text(longer + json.dumps({"kind": "event", "key": "run_stop", "clock_sec": 99.0}) + "\n")
    assert ("gpus=4: time to accuracy (s): mean" in " ".join(audit(content, [tmp_path]).differences)) == (seed != 11)


def test_runs_of_older_versions_count_by_what_was_timed(root: Path, tmp_path: Path) -> None:
    """Without `time/censored_sec`: a missed target by its epochs and evaluations; of a timeout nothing says when."""
    shutil.copytree(root / "runs", tmp_path / "runs")
    for journal in (tmp_path / "runs" / SWEEP).glob("*/journal.jsonl"):
        journal.write_text(journal.read_text().replace('"time/censored_sec"', '"time/other_sec"'))
    made = plain(tmp_path, ["gpus"])
    assert audit(made, [tmp_path]).differences == []
    (four,) = [
        figure
        for figure in made["figures"]
        if figure["figure"].startswith("time to") and figure["setting"]["gpus"] == "4"
    ]
    assert (four["n"], four["bound"]) == (5, "≥")
    assert "gpus=4: 1 stopped by a time limit; whether" in " ".join(made["warnings"])


def test_a_damaged_folder_of_another_run_is_passed_over(root: Path, content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"na')
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text("[]")
    assert audit(content, [tmp_path, root]).differences == []


def test_a_run_without_its_folder_fails_the_check(content: dict[str, Any], tmp_path: Path) -> None:
    assert "no such run folder" in audit(content, [tmp_path]).differences[0]


@pytest.mark.parametrize(
    "broken",
    [
        "tracking.analysis.compare.estimates.mean_and_standard_error",
        "tracking.analysis.compare.estimates.olympic_mean",
        "tracking.analysis.compare.comparisons.t_test",
    ],
)
def test_an_error_in_the_reports_arithmetic_fails_the_command(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    def off(*_: Any, **__: Any) -> Any:
        return (1.0, 0.1) if broken.endswith("error") else 0.017

    # Without the error the same command says that all agree: tests/tracking/analysis/report/test_endings.py.
    command = ["report", SWEEP, "--out", str(tmp_path), "--check", "--from-folders", "--runs-dir", str(root / "runs")]
    monkeypatch.setattr(broken, off)
    assert main(command) == 1
    assert "do not agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "target"), [(math.inf, "0.9"), (-math.inf, "<=0.9"), (math.nan, "0.9"), (None, "0.9")]
)
def test_what_is_not_finite_meets_no_target_in_the_check_either(value: float | None, target: str) -> None:
    assert not meets(value, target)
    assert meets(0.9, target)
