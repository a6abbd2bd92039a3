"""Speed beside utilisation: over precisions, and over what the links between GPUs carried and could; recomputed."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.studied import Writer, config, make_run, make_sweep
from tracking.analysis.audit.audit import audit
from tracking.analysis.audit.evidence import headings
from tracking.analysis.compare import Setting, Task
from tracking.analysis.report import report
from tracking.analysis.report.limit_tables import utilization_table
from tracking.analysis.report.pictures import drawing, roofline_chart
from tracking.analysis.report.setting_tables import settings_table
from tracking.analysis.results import Run
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.base import quantities
from tracking.measure.bottleneck import NAMES, Ceilings, explain, roofline
from tracking.record import documents, run_folder

USED = {"used": [{"index": 0}, {"index": 4}]}
CEILINGS = Ceilings(
    ceilings={
        "copy": {"unit": "B/s", "median": 3e12, "counters": {"dram_bandwidth_percentage": 90.0}},
        "matmul/bf16": {"unit": "FLOP/s", "median": 7e14, "counters": {}},
    }
)
PEERS = {"peer/0-4": 50e9, "peer/4-0": 40e9, "peer/0-1": 300e9, "peer/1-0": 300e9}


def run_of(sweep: Path, precision: str, seed: int, step_sec: float, busy: float) -> None:
    asked = config(seed=seed, precision=precision, gpus=2)
    folder = make_run(sweep, asked, "sqlite:///none.db", step_sec, fingerprint=USED)
    rates = {name: {"unit": "B/s", "median": rate, "counters": {}} for name, rate in PEERS.items()}
    documents.write_json(folder / "ceilings.json", Ceilings(ceilings=rates))
    log = Writer(folder / run_folder.JOURNAL, 0)
    for at in range(4, 40):  # before the clock, on it, and when it has stopped
        values = {f"system/gpu_{gpu}_sm_activity_percentage": busy + gpu for gpu in (0, 4)}
        values |= {f"system/gpu_{gpu}_nvlink_transmit_megabytes_per_sec": 0.0 for gpu in (0, 4)}
        log.add("metrics", 0.1 * at + 4.0, step=at, values=values | {"system/run_cpu_percentage": 25.0})
    explain(folder)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("precisions")
    sweep = make_sweep(root / "runs", "precisions", "sqlite:///none.db", 4)
    for seed in (1, 2):
        run_of(sweep, "fp32", seed, 0.2 + 0.01 * seed, 60.0 + seed)
        run_of(sweep, "bf16", seed, 0.1 + 0.01 * seed, 80.0 + seed)
    return root


@pytest.fixture(scope="module")
def content(root: Path) -> dict[str, Any]:
    store = FolderRuns([root / "runs"])
    made = report.make(store, ["precisions"], store.find(["precisions"]), ["precision"])
    return json.loads(json.dumps(made.plain()))


def table_of(content: dict[str, Any]) -> dict[str, Any]:
    return next(table for table in content["tables"] if table["kind"] == "utilization")


def test_speed_up_time_to_accuracy_and_utilisation_stand_beside_each_other(content: dict[str, Any]) -> None:
    table = table_of(content)
    rows = {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    assert rows["fp32"]["speed-up over fp32"].startswith("1.0")
    assert rows["bf16"]["speed-up over fp32"].startswith("1.")
    assert rows["bf16"]["speed-up of the rate over fp32"].startswith("1.8"), "0.215 s over 0.115 s, a mean of ratios"
    assert rows["bf16"]["time to accuracy (s)"]
    assert rows["bf16"]["SM activity (%)"] == "83.50 ± 0.50", "81 and 82 of one GPU, 4 more of the other"
    assert rows["bf16"]["CPU cores that the run used (%)"].startswith("25")
    assert rows["bf16"]["NVLink, out of a GPU (MB/s)"].startswith("0"), "it was not used, which is seen"
    assert rows["bf16"]["copy between the slowest pair (MB/s)"].startswith("40,000"), "of the GPUs in use, 0 and 4"


def placed(metrics: dict[str, float], gpu: str = "NVIDIA H100") -> Run:
    return Run(f"id of {gpu} {metrics}", "run", "studies", "FINISHED", 0, 1, tags={"env.gpu": gpu}, metrics=metrics)


def test_a_report_says_why_a_run_has_no_point_under_a_roofline(content: dict[str, Any]) -> None:
    """Also where no run has one, so that there is no figure."""
    (words,) = [words for words in content["warnings"] if "roofline" in words]
    assert words.startswith("4 of 4 runs on GPUs have no point under a roofline: its FLOP/s are not known")
    assert "does not report its memory traffic" in words
    flops, dram = {roofline.RATE: 1e14}, {"utilization/gpu_dram_bandwidth_percentage": 40.0}
    whole = flops | dram | {roofline.BYTES: 1e12, roofline.INTENSITY: 100.0}
    runs = [placed(flops | dram), placed(flops | dram), placed(flops), placed(whole), placed({}, gpu="none")]
    (words,) = roofline_chart.absent([Task("vgg", [Setting({}, runs, 5)])])
    assert words == (
        f"3 of 4 runs on GPUs have no point under a roofline: {roofline.NO_CEILINGS} (2); {roofline.NO_TRAFFIC} (1)"
    )
    assert roofline_chart.absent([Task("vgg", [Setting({}, [placed(whole)], 1)])]) == []


class Kept:
    """A store in which every run keeps the same ceilings."""

    def text(self, run: Run, name: str) -> str:
        return json.dumps(dataclasses.asdict(CEILINGS))


def test_each_kind_of_gpu_has_a_panel_with_its_own_runs_alone() -> None:
    def at(intensity: float) -> dict[str, float]:
        return {roofline.RATE: 1e14, roofline.BYTES: 1e12, roofline.INTENSITY: intensity}

    runs = [placed(at(90.0)), placed(at(110.0)), placed(at(50.0), "NVIDIA H200")]
    panels = roofline_chart.rooflines(Kept(), [Task("vgg", [Setting({}, runs[:2], 3, missed=runs[2:])])])  # type: ignore[arg-type]
    assert {gpu: [point.x for point in panel.runs["all"]] for gpu, panel in panels.items()} == {
        "NVIDIA H100": [90.0, 110.0], "NVIDIA H200": [50.0],
    }  # fmt: skip
    assert panels["NVIDIA H100"].means["all"] == drawing.Point(100.0, 100.0, 0.0, 10.0)
    assert panels["NVIDIA H200"].means["all"].x_error == 0.0, "of one run no error is known"


@pytest.mark.pictures
def test_a_run_keeps_its_own_roofline(root: Path, tmp_path: Path) -> None:
    """An artifact of runs with known bytes, FLOPs and ceilings; other runs have no such artifact."""
    without = next((root / "runs" / "precisions").glob("vgg*"))
    roofline_chart.write_of_run(without)
    assert not (without / "roofline.png").exists()
    folder = shutil.copytree(without, tmp_path / "run")
    place(folder)
    roofline_chart.write_of_run(folder)
    assert (folder / "roofline.png").read_bytes().startswith(b"\x89PNG")
    assert folder / "roofline.png" in run_folder.artifacts(folder)


@pytest.mark.pictures
def test_where_a_roofline_is_drawn_its_caption_says_which_runs_have_no_point(root: Path, tmp_path: Path) -> None:
    runs = shutil.copytree(root / "runs", tmp_path / "runs")
    place(next(runs.glob("precisions/vgg*")))
    store = FolderRuns([runs])
    made = report.make(store, ["precisions"], store.find(["precisions"]), ["precision"])
    assert "3 of 4 runs on GPUs have no point" in made.plots[-1].caption
    assert not [words for words in made.warnings if "roofline" in words]


def place(folder: Path) -> None:
    """Give a run what a place under the roofline takes."""
    documents.write_json(folder / "ceilings.json", CEILINGS)
    log = Writer(folder / run_folder.JOURNAL, 0)
    log.event("model_flops", 4.0, per_sample=1e12, num_devices=2)
    for at in range(4, 40):
        log.add("metrics", 0.1 * at + 4.0, step=100 + at, values={"system/gpu_0_dram_bandwidth_percentage": 40.0})
    explain(folder)


def test_every_cell_is_recomputed_and_a_wrong_one_is_found(root: Path, content: dict[str, Any]) -> None:
    assert audit(content, [root]).differences == []
    place = content["tables"].index(table_of(content))
    headings = table_of(content)["columns"]
    for column, heading in enumerate(headings[1:], 1):
        other = copy.deepcopy(content)
        other["tables"][place]["rows"][1][column] = "123.4"
        assert any(heading in words for words in audit(other, [root]).differences), heading
    figures = [figure for figure in content["figures"] if "over fp32" in figure["figure"]]
    assert figures
    other = copy.deepcopy(content)
    other["figures"][content["figures"].index(figures[-1])]["mean"] *= 1.5
    assert audit(other, [root]).differences


def test_the_check_knows_every_column_that_a_report_can_have() -> None:
    assert {words: cause for cause, words in NAMES.items()} == headings.CAUSES
    assert [*headings.BUSY.values()] == [*quantities.OF_HARDWARE]
    assert [*headings.LIMITS.values()] == [quantities.bottleneck(name) for name in NAMES]


@pytest.mark.parametrize(("num_runs", "explained"), [(1, False), (2, True)])
def test_a_legend_explains_signs_of_figures_and_no_label(num_runs: int, explained: bool) -> None:
    metrics = {"throughput/samples_per_sec": 100.0, "utilization/gpu_sm_activity_percentage": 80.0}
    task = Task("vgg", [Setting({"note": "5 ± 1, ≥ 3 (olympic)"}, [placed(metrics)] * num_runs, num_runs)])
    for made in (settings_table(task, ["note"]), utilization_table(task, ["note"])):
        assert made is not None
        (row,) = made[0].rows
        assert row[0] == "5 ± 1, ≥ 3 (olympic)"
        assert ("±: standard error" in made[0].note) == explained
        assert "≥" not in made[0].note
        assert "olympic" not in made[0].note
