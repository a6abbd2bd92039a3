"""Published figures: what is derived from them is what was published of it, or follows by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.support.studied import config, make_run, make_sweep
from tracking.__main__ import main
from tracking.analysis.published import node_scaling, studies
from tracking.analysis.published.comparison import beside_published
from tracking.analysis.published.reference_tables import reference_tables
from tracking.analysis.published.studies import NAMES, reference_rows
from tracking.analysis.report import report
from tracking.analysis.results import FolderRuns
from tracking.analysis.results.table import Table

# The rows of each table, as its source prints them.
PRINTED = {
    "dgx1_scaling": [
        "image_classification_resnet50 1 512 16.21 83 fp16",
        "image_classification_resnet50 4 1664 4.56 63 fp16 4.76",
        "image_classification_resnet50 8 1664 2.2002 63 fp16 9.70",
        "object_detection_heavy_maskrcnn 1 2 179.183 11 fp16",
        "object_detection_heavy_maskrcnn 4 4 44.315 18 fp16",
        "object_detection_heavy_maskrcnn 8 4 24.9895 13 fp16 6.066",
        "object_detection_light_ssd 1 152 4.080 49 fp16",
        "object_detection_light_ssd 4 152 1.115 49 fp16",
        "object_detection_light_ssd 8 152 0.5628 49 fp16",
        "translation_gnmt 1 512 39.98 5 fp16",
        "translation_gnmt 4 512 12.31 5 fp16 3.24",
        "translation_gnmt 8 1024 6.4 3 fp16",
        "translation_transformer 1 5120 60.34 8 fp16",
        "translation_transformer 4 5120 22.38 4 fp16",
        "translation_transformer 8 5120 7.648 4 fp16 15.778",
        "recommendation_ncf 1 1048576 0.135384615 13 fp16",
        "recommendation_ncf 4 1048576 0.076923077 13 fp16",
        "recommendation_ncf 8 1048576 0.048461538 13 fp16 2.789",
    ],
    "fashion_mnist_p2_p3": [
        "p2.xlarge K80 8 0.90 1.0",
        "p2.xlarge K80 9 51.6 0.90 1.2",
        "p3.2xlarge V100 9 12.8 3.06 4.9",
    ],
    "resnet50_c4140": ["1 4 61 1.0", "2 8 62 1.8", "4 16 65 3.3", "8 32 81 4.9"],
    "resnet50_frameworks": ["TensorFlow 1.12 Google 7.4 4 61 4.42 8 45", "MXNet 1.3.0 NVIDIA 7.4 4 62 4.01 8 34"],
    "dell_mlperf": [
        "resnet50 4 x V100 (T640) 4 TensorFlow 256 18260",
        "resnet50 4 x V100 (T640) 4 TensorFlow 512 16781",
        "resnet50 4 x V100 (940xa) 4 MXNet 1664 16663",
        "resnet50 4 x V100 (940xa) 4 MXNet 832 15994",
        "gnmt 4 x V100 4 512 2993",
        "gnmt 4 x V100 4 256 2656",
        "gnmt 4 x V100 4 128 8551",
        "gnmt 4 x V100 (940xa) 4 512 3000",
        "gnmt 4 x V100 (940xa) 4 256 2656",
        "transformer 4 x V100 (940xa) 4 10240 4188",
        "transformer 4 x V100 (940xa) 4 5120 5321",
        "maskrcnn 4 x V100 (940xa) 4 33202",
        "maskrcnn 4 x V100 (940xa) 4 39460",
        "maskrcnn 4 x V100 4 4 33698",
        "maskrcnn 4 x V100 4 8 28164",
    ],
    "maskrcnn_stacks": [
        "K80 11 4 61 8 418 10.0 best stack found on average",
        "M60 7 4 31 4 variation within a stack is as large as between stacks: no conclusion",
        "V100 16 8 61 15 418 10.0 384 9.0 clear optimum and clear worst",
        "T4 15 4 16 14 410 9.0 clear worst; recent drivers alike; driver 384 does not support this GPU",
    ],
}
RECORDED = [
    "resnet50 H200 8 12.03", "resnet50 H200 8 7869", "resnet50 H100 8 13.16", "resnet50 H200 1 3079",
    "resnet50 A100 80GB 1 2470", "resnet50 V100 16GB 1 1200", "maskrcnn H100 8 19.18", "maskrcnn H100 8 181",
    "maskrcnn A100 1 24", "ssd300 H200 1 946", "ssd300 A100 1 724.4", "gnmt H200 1 570504", "gnmt A100 40GB 1 140909",
    "transformer A100 1 82059", "ncf H200 1 84800000", "ncf A100 1 34080000", "cifar10_to_94_percent A100 1 2.59",
    "retinanet H200 8 33.39", "retinanet B200 8 21.99", "bert H100 8 5.51", "bert B200 8 3.38",
    "minigo P100 with 16 cores 1 60", "minigo V100 8 27.39", "minigo 2 sockets of Xeon Platinum 9280 0 77.95",
    "minigo A100 8 299.7", "minigo A100 8 161.6", "minigo H100 8 174.6", "gpt2_124m H100 8 1.23",
    "gpt2_124m H100 8 448000",
    "gpt2_124m H200 1 490000", "llama3_8b H100 8 6667", "llama3_8b H100 8 8532",
]  # fmt: skip


def test_the_dgx1_reports_speedups_follow_from_its_minutes_and_epochs() -> None:
    scaling, speedups = reference_tables(["dgx1"])
    rows = {(row[0], row[1]): row for row in scaling.rows}
    resnet = rows["image_classification_resnet50", 8.0]
    assert resnet[6] == pytest.approx(2.2002 * 63)  # minutes
    assert resnet[7] == pytest.approx(16.21 * 83 / (2.2002 * 63))
    assert resnet[8] == pytest.approx(16.21 * 83 / (2.2002 * 63) / 8)
    assert len(rows) == 18
    printed = {key: row[9] for key, row in rows.items() if row[9] is not None}
    assert printed == {  # Its table gives another one, or one that rounds to another.
        ("image_classification_resnet50", 4.0): 4.76, ("image_classification_resnet50", 8.0): 9.70,
        ("translation_gnmt", 4.0): 3.24, ("recommendation_ncf", 8.0): 2.789,
        ("object_detection_heavy_maskrcnn", 8.0): 6.066, ("translation_transformer", 8.0): 15.778,
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
    table, _ = reference_tables(["fashion_mnist"])
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
    assert table.column("time to accuracy (min)") == [pytest.approx(269.62), pytest.approx(248.62)]
    assert [row[1:5] for row in table.rows] == [["1.12", "Google", "7.4", 4.0], ["1.3.0", "NVIDIA", "7.4", 4.0]]
    assert table.column("their share of the time (%)") == [45.0, 34.0]
    assert "Demystifying Hardware Infrastructure Choices" in table.note
    rows = reference_rows(["frameworks"], "resnet50")
    assert [row.what for row in rows] == ["TensorFlow 1.12 of Google, cuDNN 7.4", "MXNet 1.3.0 of NVIDIA, cuDNN 7.4"]
    assert [row.metrics["epochs/to_accuracy"] for row in rows] == [61, 62]


def test_the_c4140_studys_efficiency_and_speed_of_an_epoch() -> None:
    table, _ = reference_tables(["c4140"])
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
    files = ("dgx1_scaling.csv", "records.csv", "resnet50_frameworks.csv", "dell_mlperf.csv")
    published = sum(len(studies.read(file)) for file in files) + 2  # Two of the P2/P3 study's rows have minutes.
    assert len(reference_rows(NAMES)) == published


def test_an_unknown_study_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"dgx2.*Allowed: dgx1, c4140"):
        reference_tables(["dgx1", "dgx2"])
    with pytest.raises(ConfigError, match="Allowed"):
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
    assert "ssd on digits to accuracy 0.9: nothing is published" not in printed
    written = (tmp_path / "report").glob("*")
    assert any("beside published figures" in path.read_text() for path in written if path.suffix in (".md", ".html"))
    assert main(["report", "pair", "--reference", "stacks", *where]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "driver 418" not in printed  # published of Mask R-CNN, which is not among these runs
    assert "ssd on digits to accuracy 0.9: nothing is published of ssd in stacks" in printed
    sweep = make_sweep(tmp_path / "runs", "masks", "sqlite:///mlflow.db", 2)
    for seed in (1, 2):
        make_run(sweep, config(seed=seed, model="maskrcnn"), "sqlite:///mlflow.db", 0.1)
    assert main(["report", "masks", "--reference", "stacks", *where]) == 0
    assert "driver 418" in capsys.readouterr().out
    assert main(["report", "pair", "--reference", "dgx9", *where]) == 2
    assert main(["report"]) == 2
    assert "--reference-only" in capsys.readouterr().err


def test_published_figures_of_another_task_stand_by_themselves(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, "go", "sqlite:///none.db", 2)
    for seed in (1, 2):
        make_run(sweep, config(seed=seed, model="minigo"), "sqlite:///none.db", 0.1)
    store = FolderRuns([tmp_path])
    tasks = report.make(store, ["go"], store.find(["go"]), ["precision"]).tasks
    (table,), sentences = beside_published(tasks, ["mlperf"])
    assert table.kind == "published"
    assert not sentences
    assert [str(row[-1]) for row in table.rows] == ["None", "27.39", "77.95", "299.7", "161.6", "174.6"]
    assert "its own board and target" in table.note


def test_a_study_without_anything_of_a_workload_is_named_also_beside_one_that_has_something(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, "two", "sqlite:///none.db", 4)
    for seed in (1, 2):
        for model in ("resnet50", "gnmt"):
            make_run(sweep, config(seed=seed, model=model), "sqlite:///none.db", 0.1)
    store = FolderRuns([tmp_path])
    tasks = report.make(store, ["two"], store.find(["two"]), ["precision"]).tasks
    cases: dict[tuple[str, ...], dict[str, str]] = {
        ("frameworks",): {"gnmt": "frameworks"},
        ("dgx1", "frameworks", "stacks"): {"resnet50": "stacks", "gnmt": "frameworks, stacks"},
        ("dell", "c4140"): {"gnmt": "c4140"},
        ("airbench",): {"resnet50": "airbench", "gnmt": "airbench"},
        ("dgx1", "dell"): {},
    }
    for names, absent in cases.items():
        tables, sentences = beside_published(tasks, names)
        said = {f"{model} on digits to accuracy 0.9: nothing is published of {model} in {which}"
                for model, which in absent.items()}  # fmt: skip
        assert set(sentences) == said
        beside = {table.about.split()[0] for table in tables if table.kind == "beside"}
        assert beside == {model for model in ("resnet50", "gnmt") if reference_rows(names, model)}
    tables, _ = beside_published(tasks, ["frameworks"])
    (row,) = [row for row in tables[0].rows if "TensorFlow 1.12 of Google" in str(row[0])]
    assert {"269.62", "61"} <= set(row)


def test_what_the_texts_print_beside_their_tables_is_held() -> None:
    def values(study: str) -> dict[tuple[str, str], str]:
        (table,) = [table for table in reference_tables([study]) if table.title.startswith("Printed")]
        return {(str(row[0]), str(row[2])): f"{row[3]} {row[4]}" for row in table.rows}

    assert values("fashion_mnist") == {("vgg", "speed-up, both with CUDA 9"): "4 x"}
    assert values("c4140") == {
        ("resnet50", "more disk throughput"): "66 %",
        ("resnet50", "more disk throughput with each doubling"): "100 MB/s",
    }
    assert values("stacks") == {
        ("maskrcnn", "spread of run time between averages"): "up to 15 %",
        ("maskrcnn", "spread of run time between single points"): "up to 20 %",
    }
    assert values("dell") == {
        ("all", "SXM2 over PCIe: speed-up of trainings on one GPU"): "1 to 5 %",
        ("all", "mixed over single precision: speed-up"): "150 to 330 %",
        ("resnet50", "mixed over single precision: minutes saved"): "330 min",
        ("resnet50", "mixed over single precision: training time saved"): "70 %",
        ("all", "gain of the NVLink bridge"): "0 to 25 %",
        ("resnet50", "gain of the NVLink bridge, MXNet"): "8 %",
        ("resnet50", "minutes saved by the NVLink bridge, MXNet"): "50 min",
        ("transformer", "gain of the NVLink bridge"): "25 %",
        ("transformer", "minutes saved by the NVLink bridge"): "33 min",
        ("all", "NVLink over PCIe in distributed training"): "up to 40 %",
    }
    assert "one run" not in node_scaling.NOTE
    (c4140, _) = reference_tables(["c4140"])
    assert "systems K and M" in c4140.note


def test_every_table_has_the_figures_of_its_source() -> None:
    for name, printed in PRINTED.items():
        rows = [" ".join(row.values()).split() for row in studies.read(f"{name}.csv")]
        assert rows == [line.split() for line in printed], name


def test_the_records_are_those_of_their_sources() -> None:
    keys = ("workload", "hardware", "gpus", "value")
    assert [" ".join(row[key] for key in keys) for row in studies.read("records.csv")] == RECORDED


def test_a_table_keeps_what_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    table = Table("t", {"a": "", "b": "{:.1f}"}, [["[bold]x[/bold]", 1.25], ["y|z", None]])
    Console(width=80).print(table.rich())
    assert "[bold]x[/bold]" in capsys.readouterr().out
    assert "| y\\|z |  |" in table.markdown()
