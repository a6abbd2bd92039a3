"""Published figures: what is derived from them is what was published of it, or follows by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.tracking.studied import config, make_run, make_sweep
from tracking.__main__ import main
from tracking.published import studies
from tracking.published.studies import NAMES, reference_rows
from tracking.published.tables import reference_tables
from tracking.results.table import Table


def test_the_dgx1_reports_speedups_follow_from_its_minutes_and_epochs() -> None:
    scaling, speedups = reference_tables(["dgx1"])
    rows = {(row[0], row[1]): row for row in scaling.rows}
    resnet = rows["image_classification_resnet50", 8.0]
    assert resnet[6] == pytest.approx(2.2002 * 63)  # minutes
    assert resnet[7] == pytest.approx(16.21 * 83 / (2.2002 * 63))
    assert resnet[8] == pytest.approx(16.21 * 83 / (2.2002 * 63) / 8)
    assert len(rows) == 18
    printed = {key: row[9] for key, row in rows.items() if row[9] is not None}
    assert printed == {  # The source contradicts itself in these.
        ("image_classification_resnet50", 4.0): 4.76, ("image_classification_resnet50", 8.0): 9.70,
        ("translation_gnmt", 4.0): 3.24, ("recommendation_ncf", 8.0): 2.789,
    }  # fmt: skip
    assert "batch size" in scaling.columns
    assert "cannot all be global" in scaling.note
    assert {str(row[0]): row[1:] for row in speedups.text()} == {  # worked out by hand from the per-epoch table
        "image_classification_resnet50": ["1.00", "4.68", "9.71"],
        "object_detection_heavy_maskrcnn": ["1.00", "2.47", "6.07"],
        "object_detection_light_ssd": ["1.00", "3.66", "7.25"],
        "translation_gnmt": ["1.00", "3.25", "10.41"],
        "translation_transformer": ["1.00", "5.39", "15.78"],
        "recommendation_ncf": ["1.00", "1.76", "2.79"],
    }
    assert list(speedups.columns) == ["workload", "1 GPU", "4 GPUs", "8 GPUs"]


def test_the_p2_p3_studys_costs_are_minutes_times_price() -> None:
    (table,) = reference_tables(["fashion_mnist"])
    assert table.column("cost (USD)") == [None, pytest.approx(51.6 / 60 * 0.90), pytest.approx(12.8 / 60 * 3.06)]
    assert [row[5] for row in table.text()] == ["", "0.77", "0.65"]  # the faster instance is the cheaper one
    p2, p3 = (minutes for minutes in table.column("minutes") if isinstance(minutes, float))
    _, published_p2, published_p3 = table.column("speed-up over p2.xlarge, CUDA 8")
    # The published speed-ups have one decimal: 4.9 / 1.2 lies within their rounding of 51.6 / 12.8.
    assert isinstance(published_p2, float)
    assert isinstance(published_p3, float)
    assert (published_p3 - 0.05) / (published_p2 + 0.05) < p2 / p3 < (published_p3 + 0.05) / (published_p2 - 0.05)


def test_resnet50_by_framework_takes_minutes_an_epoch_times_epochs() -> None:
    (table,) = reference_tables(["frameworks"])
    assert [row[0] for row in table.rows] == ["TensorFlow", "MXNet"]
    assert [row[3] for row in table.rows] == [pytest.approx(269.62), pytest.approx(248.62)]


def test_the_c4140_studys_efficiency_and_speed_of_an_epoch() -> None:
    (table,) = reference_tables(["c4140"])
    assert table.column("speed-up") == [1.0, 1.8, 3.3, 4.9]
    assert table.column("efficiency") == [pytest.approx(value) for value in (1.0, 0.9, 0.825, 0.6125)]
    assert table.column("speed-up of an epoch")[3] == pytest.approx(4.9 * 81 / 61)


@pytest.mark.parametrize("name", NAMES)
def test_every_study_has_a_table_that_names_its_source(name: str) -> None:
    for table in reference_tables([name]):
        assert table.rows
        assert "Published" in table.note or all(table.column("source"))
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert len(table.markdown().splitlines()) >= len(table.rows) + 4


def test_rows_are_in_our_units_and_under_our_keys() -> None:
    (row,) = [row for row in reference_rows(["dgx1"], "ssd") if row.gpus == 8]
    assert row.metrics["time/to_accuracy_sec"] == pytest.approx(0.5628 * 60 * 49)
    assert row.metrics["time/epoch_sec"] == pytest.approx(0.5628 * 60)
    assert (row.precision, row.batch_size) == ("fp16", 152)
    time, *_ = reference_rows(["mlperf"], "maskrcnn")
    assert time.metrics == {"time/to_accuracy_sec": pytest.approx(19.18 * 60)}
    (lamda,) = reference_rows(["lambda"], "ssd")
    assert lamda.metrics == {"throughput/samples_per_sec": 946.0}
    assert "ResNet-50 backbone" in lamda.what  # ours has another one, which the reader has to see
    cost = reference_rows(["fashion_mnist"])[-1]
    assert cost.metrics["cost/to_accuracy_usd"] == pytest.approx(0.6528)
    assert all(row.source for row in reference_rows(NAMES))
    assert not reference_rows(["mlperf"], "vgg")


def test_every_published_row_with_figures_of_runs_is_offered() -> None:
    files = ("dgx1_scaling.csv", "records.csv")
    published = sum(len(studies.read(file)) for file in files) + 2  # Two of the P2/P3 study's rows have minutes.
    assert len(reference_rows(NAMES)) == published


def test_an_unknown_study_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"dgx2.*allowed: dgx1, c4140"):
        reference_tables(["dgx1", "dgx2"])
    with pytest.raises(ConfigError, match="allowed"):
        reference_rows([])
    assert main(["report", "--reference-only", "dgx2"]) == 2
    assert "dgx2" in capsys.readouterr().err


def test_the_command_prints_published_figures_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--reference-only", "dgx1,fashion_mnist"]) == 0
    printed = capsys.readouterr().out
    assert "15.78" in printed
    assert "0.77" in printed
    assert "written" not in printed


def test_published_figures_alone_are_written_where_a_folder_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--reference-only", "dgx1", "--out", str(tmp_path / "new")]) == 0
    assert str(tmp_path / "new" / "report.md") in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"report.md", "report.json", "report.html"}
    for name in ("report.md", "report.html"):
        assert "15.78" in (tmp_path / "new" / name).read_text()
        assert "cannot all be global" in (tmp_path / "new" / name).read_text()
    (first, _) = json.loads((tmp_path / "new" / "report.json").read_text())["tables"]
    assert first["rows"] == [[*row] for row in reference_tables(["dgx1"])[0].rows]


def test_published_rows_stand_beside_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.chdir(tmp_path)
    sweep = make_sweep(tmp_path / "runs", "pair", "sqlite:///mlflow.db", 4)
    for seed in (1, 2):
        make_run(sweep, config(seed=seed, model="ssd"), "sqlite:///mlflow.db", 0.1)
        make_run(sweep, config(seed=seed, model="own"), "sqlite:///mlflow.db", 0.1)
    where = ["--from-folders", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]
    assert main(["report", "pair", "--by", "precision", "--reference", "dgx1,lambda", *where]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "ssd on digits to accuracy 0.9, beside published figures" in printed
    assert "yours: precision=fp32 (n=2)" in printed
    assert "946" in printed
    assert "27.577" in printed  # minutes: 0.5628 x 49
    assert "own on digits to accuracy 0.9: nothing is published of own in dgx1, lambda" in printed
    written = (tmp_path / "report").glob("*")
    assert any("beside published figures" in path.read_text() for path in written if path.suffix in (".md", ".html"))
    assert main(["report", "pair", "--reference", "stacks", *where]) == 0
    assert "driver 418" not in capsys.readouterr().out  # published of Mask R-CNN, which is not among these runs
    sweep = make_sweep(tmp_path / "runs", "masks", "sqlite:///mlflow.db", 2)
    for seed in (1, 2):
        make_run(sweep, config(seed=seed, model="maskrcnn"), "sqlite:///mlflow.db", 0.1)
    assert main(["report", "masks", "--reference", "stacks", *where]) == 0
    assert "driver 418" in capsys.readouterr().out
    assert main(["report", "pair", "--reference", "dgx9", *where]) == 2
    assert main(["report"]) == 2
    assert "--reference-only" in capsys.readouterr().err


def test_a_table_keeps_what_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    table = Table("t", {"a": "", "b": "{:.1f}"}, [["[bold]x[/bold]", 1.25], ["y|z", None]])
    Console(width=80).print(table.rich())
    assert "[bold]x[/bold]" in capsys.readouterr().out
    assert "| y\\|z |  |" in table.markdown()
