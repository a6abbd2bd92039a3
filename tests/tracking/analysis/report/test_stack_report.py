"""The report of a study of stacks on several machines: the best one, what that is worth, what is missing and why."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stack_study import A100, BY, H100, STUDY, report_of, write_study
from tests.support.studied import CLOCKS, config, make_run, make_sweep
from tracking.__main__ import main
from tracking.analysis.audit.audit import audit
from tracking.analysis.report import page, report
from tracking.analysis.report.report import Report
from tracking.analysis.results.mlflow_runs import MlflowRuns
from tracking.analysis.results.table import Table
from tracking.analysis.statistics import t_test
from tracking.jobs.follow import sync

# The H100's stacks can be told apart, and the A100's cannot.
SPREADS = {H100: 0.005, A100: 0.2}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stacks")
    write_study(root / "runs", "sqlite:///none.db", 5, SPREADS, ["12.4", "13.0"])
    return root


@pytest.fixture(scope="module")
def made(root: Path) -> Report:
    return report_of(root / "runs")


def tables(made: Report, kind: str) -> list[Table]:
    return [table for table in made.tables if table.kind == kind]


def test_stacks_are_compared_on_the_same_gpu_alone(made: Report) -> None:
    on_a100, on_h100 = tables(made, "stacks")
    for table, gpu in ((on_a100, A100), (on_h100, H100)):
        assert table.title == f"vgg on digits to accuracy 0.9, env.gpu={gpu}: best stack"
        assert all(str(row[1]).endswith(f"env.gpu={gpu}") for row in table.rows[:2])


def test_it_says_the_best_and_the_next_the_factor_with_its_interval_and_what_that_saves(root: Path) -> None:
    made = report_of(root / "runs", metric="time/epoch_sec")
    note = tables(made, "stacks")[1].note
    best, second = "env.driver=580.159.04 env.cuda=13.0", "env.driver=580.159.04 env.cuda=12.4"
    match = re.fullmatch(
        rf".*: the best stack is {best}, ahead of the next, {second}, by a factor of (\S+) "
        r"\((\S+) to (\S+), with 95% confidence for all 4 stacks at once\)\. "
        rf"{best} saves ≤ (\S+) ± (\S+) USD a training to the target over {second} "
        r"\(≥ (\S+) ± \S+ and not (\S+) ± \S+\)\.",
        note,
    )
    assert match, note
    factor, low, high, saved, _, better, worse = map(float, match.groups())
    assert 1 < low < factor < high
    assert saved == pytest.approx(worse - better, rel=3e-3)
    settings = {setting.name: setting for setting in made.tasks[0].settings}
    values = [settings[f"{stack} env.gpu={H100}"].measured("time/epoch_sec").reached for stack in (second, best)]
    (said,) = [sentence.values for sentence in made.sentences if sentence.kind == "best stack"]
    assert (f"{said['low']:.3g}", f"{said['high']:.3g}") == (match[2], match[3])
    for bound, which in ((said["low"], "greater"), (said["high"], "less")):  # the test of this ratio is at its level
        p = t_test(values[0], [bound * value for value in values[1]], which)
        assert p == pytest.approx(0.05 / (2 * 3), rel=1e-6)  # three comparisons with the best of four


def test_where_no_conclusion_is_possible_it_says_how_many_runs_would_decide(made: Report) -> None:
    note = tables(made, "stacks")[0].note
    match = re.search(
        r"which may be noise\. (\d+) runs a side \(up to (\d+)\) would tell .* in 80% of cases, "
        r".*: (\d+) more in all\.$",
        note,
    )
    assert "no conclusion is possible about the best stack" in note
    assert match, note
    assert int(match[3]) == 2 * (int(match[1]) - 5)
    assert int(match[2]) > int(match[1])
    assert "USD" not in note


def test_a_time_to_accuracy_of_a_best_stack_that_missed_decides_nothing(made: Report) -> None:
    """Its epochs are shorter by far, but nobody knows how late the run that missed would have been."""
    note = tables(made, "stacks")[1].note
    assert "no conclusion is possible about the best stack" in note
    assert note.endswith("runs that did not reach the target have no spread.")


def test_the_words_stand_below_the_figure_on_the_page_and_on_the_terminal(
    root: Path, made: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (plot,) = [plot for plot in made.plots if plot.name == "1-stacks"]
    notes = [table.note for table in tables(made, "stacks")]
    assert all(note in plot.caption for note in notes)
    assert f"env.driver=580.159.04 env.cuda=13.0 env.gpu={H100} 4 of 5 (38-96 %)" in plot.caption
    assert all(note in page.html(made).partition(f'alt="{plot.caption[:20]}')[2] for note in notes)
    monkeypatch.setenv("COLUMNS", "4000")
    command = ["report", STUDY, "--by", ",".join(BY), "--from-folders", "--runs-dir", str(root / "runs")]
    assert main([*command, "--out", str(tmp_path), "--check"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(note in printed for note in notes)


def test_what_is_missing_is_shown_with_why(made: Report) -> None:
    (table,) = tables(made, "missing")
    assert list(table.columns) == [*BY, "why"]
    old = "not run; CUDA 13.0 needs driver 580 or later, and this is"
    assert [list(row) for row in table.rows] == [
        ["535.9", "12.4", A100, "failed: bad_input (it ended by bad_input)"],
        ["535.9", "13.0", A100, f"{old} 535.9"],
        ["535.9", "13.0", H100, f"{old} 535.9"],
        ["535.104.05", "13.0", A100, f"{old} 535.104.05"],
        ["535.104.05", "13.0", H100, f"{old} 535.104.05"],
    ]
    assert "gaps in the figure" in table.note


def test_drivers_are_in_the_order_of_their_versions(made: Report) -> None:
    drivers = dict.fromkeys(row[0] for row in made.tables[0].rows)
    assert list(drivers) == ["535.9", "535.104.05", "580.159.04"]


def test_a_report_from_mlflow_is_that_from_folders(
    tmp_path: Path, empty_database: Path, mlflow_environment: None
) -> None:
    uri = f"sqlite:///{shutil.copy(empty_database, tmp_path / 'mlflow.db')}"
    outcomes = sync.sync(write_study(tmp_path / "runs", uri, 1, SPREADS, ["12.4", "13.0"]))
    assert {outcome.state for outcome in outcomes} == {"complete"}
    store = MlflowRuns(uri)
    ours, theirs = report.make(store, [STUDY], store.find([STUDY]), BY).plain(), report_of(tmp_path / "runs").plain()
    assert {"stacks", "missing"} <= {table["kind"] for table in ours["tables"]}
    assert ours.pop("source") != theirs.pop("source")
    assert ours == theirs


@pytest.fixture
def few(tmp_path: Path) -> Callable[..., Report]:
    """The report by driver and torch of runs given as (driver, torch, seconds a step, options)."""

    def of(*runs: tuple[str, str, float, dict[str, object]], by: tuple[str, ...] = ("driver", "env.torch")) -> Report:
        sweep = make_sweep(tmp_path, STUDY, "sqlite:///none.db", len(runs))
        for seed, (driver, torch, step_sec, options) in enumerate(runs, 1):
            tags = {"env.driver": driver, "env.torch": torch, "env.cuda": {"2.6": "12.4", "2.11": "13.0"}[torch]}
            asked = config(seed=seed, warm_up=bool(options.pop("warm_up", False)))
            make_run(sweep, asked, "sqlite:///none.db", step_sec, tags=tags, fingerprint=CLOCKS, **options)  # type: ignore[arg-type]
        made = report_of(tmp_path, by=by)
        assert audit(made.plain(), [tmp_path]).differences == []
        return made

    return of


def test_what_goes_together_is_not_missing_and_cuda_is_known_by_its_torch(few: Callable[..., Report]) -> None:
    runs = [("535.1", "2.6", 0.1, {}), ("580.1", "2.6", 0.1, {}), ("580.1", "2.11", 0.1, {})]
    (table,) = tables(few(*runs, by=("driver", "env.torch", "env.cuda")), "missing")
    why = "not run; CUDA 13.0 needs driver 580 or later, and this is 535.1"
    assert [list(row) for row in table.rows] == [["535.1", "2.11", "13.0", why]]
    (table,) = tables(few(by=("driver", "env.torch")), "missing")
    assert [list(row) for row in table.rows] == [["535.1", "2.11", why]]


def test_a_combination_of_which_there_is_only_a_warm_up_is_missing(few: Callable[..., Report]) -> None:
    runs = [("580.1", "2.6", 0.1, {}), ("590.1", "2.6", 0.1, {}), ("590.1", "2.11", 0.1, {})]
    (table,) = tables(few(*runs, ("580.1", "2.11", 0.1, {"warm_up": True})), "missing")
    assert [list(row) for row in table.rows] == [["580.1", "2.11", "not counted: warm-up"]]
    assert "PyTorch" not in table.title


def test_of_one_run_a_stack_it_says_to_repeat_it(few: Callable[..., Report]) -> None:
    made = few(("580.1", "2.6", 0.1, {}), ("580.1", "2.11", 0.2, {}))
    (table,) = tables(made, "stacks")
    assert "but there is one run of driver=580.1 env.torch=2.6 and of" in table.note
    assert not tables(made, "missing")


def test_of_runs_that_missed_no_number_would_decide(few: Callable[..., Report]) -> None:
    missed: dict[str, object] = {"accuracies": (0.1, 0.2)}
    runs = [("580.1", "2.6", 0.10, {}), ("580.1", "2.11", 0.12, {}), ("580.1", "2.6", 0.11, {})]
    (table,) = tables(few(*runs, ("580.1", "2.11", 0.12, missed)), "stacks")
    assert table.note.endswith("is not known: runs that did not reach the target have no spread.")
